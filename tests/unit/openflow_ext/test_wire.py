"""The codec on malformed input, and round trips of every message and action."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openflow_ext import wire
from openflow_ext.wire.port_counters import _decoded
from tests.support.openflow.wire_values import ACTIONS, FIELDS, MESSAGES, PORTS, PORTS_13, U8, U32, VERSIONS

ALARM = wire.BufAlarm(wire.OfpPort(3, name=b"s1-eth3"), 31, 46934, 10**8, n_i=40)
CONFIG = wire.PortConfig(3, wire.PortConfigFlags.ALARM, k_pkts=30)
COUNTERS = wire.PortCountersReply((wire.PortCountersRecord(1), wire.PortCountersRecord(2)))
V4, V6 = (IPv4Address("10.0.0.2"), IPv4Address("10.0.0.1")), (IPv6Address(2), IPv6Address(1))
RECORD = wire.FlowRecord(wire.FlowKind.OPENED, *V4, 40000, 80, out_port=1)
REPORT = wire.FlowReport((RECORD, wire.FlowRecord(wire.FlowKind.CLOSED, *V6, 40000, 80, 1)), lost=2)
ENTRY = wire.ArmEntry(*V4, 80, 40000, 1536)
ARM = wire.Arm(3, (ENTRY, wire.ArmEntry(*V6, 80, 40000, 1536)))
REPORT_CONFIG = wire.FlowReportConfig(wire.FlowKinds.OPENED)
REFLEX = wire.Reflex(3, 0, on=True)
FIXED = [
    *(ALARM, CONFIG, wire.PortConfigReply(3), wire.PortCountersRequest(), COUNTERS),
    *(REPORT, ARM, REPORT_CONFIG, REFLEX),
]
EARLIER_ALARM_LENGTH = 120
"""Without an allowance."""
WHOLE = {
    id(ALARM): {EARLIER_ALARM_LENGTH},
    id(COUNTERS): {32 + 144 * n for n in range(2)},
    id(REPORT): {32 + 88 * n for n in range(2)},
}
"""Lengths at which a message with fewer records is complete."""
EVERY = [*FIXED, wire.ExperimenterError(wire.ErrorCode.BAD_PORT, b"refused")]
EVERY_ACTION = [
    wire.ModWindow(1536),
    wire.IncrementNi(),
    wire.DecrementNi(),
    wire.SetWindow(),
    wire.Observe(),
]


def resized(data: bytes, size: int) -> bytes:
    """``data`` cut or zero-filled to ``size``; its header states the new length."""
    body = data.ljust(size, b"\0")[:size]
    return body[:2] + size.to_bytes(2, "big") + body[4:]


def patched(data: bytes, at: int, octets: bytes) -> bytes:
    return data[:at] + octets + data[at + len(octets) :]


@given(MESSAGES, U32)
def test_messages_round_trip(message: Any, xid: int) -> None:
    for version in VERSIONS:
        data = wire.encode_message(message, version, xid)
        header = wire.decode_header(data)
        assert (header.version, header.length, header.xid) == (version, len(data), xid)
        assert wire.is_extension_message(data)
        assert not wire.is_native_message(data)
        assert wire.decode_message(data) == message


@given(MESSAGES)
def test_only_alarms_in_13_have_native_framing(message: Any) -> None:
    plain = wire.encode_message(message)
    native = wire.encode_message(message, framing="native")
    assert wire.decode_message(native) == message
    if isinstance(message, wire.BufAlarm | wire.BufNormal):
        assert native[1] == (30 if isinstance(message, wire.BufAlarm) else 31)
        assert native[8:] == plain[16:]
        assert wire.is_native_message(native)
        assert not wire.is_extension_message(native)
    else:
        assert native == plain
    in_15 = wire.encode_message(message, wire.OFP15, framing="native")
    assert in_15 == wire.encode_message(message, wire.OFP15)
    assert not wire.is_native_message(b"\6\x1e" + in_15[2:])


@given(ACTIONS)
def test_actions_round_trip(action: Any) -> None:
    data = wire.encode_action(action)
    assert len(data) % 8 == 0
    assert wire.is_extension_action(data)
    assert wire.decode_action(data) == action


@given(FIELDS)
def test_fields_round_trip(field: wire.TcpWindow) -> None:
    data = wire.encode_field(field)
    assert wire.is_extension_field(data)
    assert wire.decode_field(data) == field


@given(PORTS_13)
def test_ports_round_trip(port: wire.OfpPort) -> None:
    assert wire.decode_port(wire.encode_port(port)) == port


@given(PORTS)
def test_ports_of_15_round_trip(port: wire.OfpPort) -> None:
    assert wire.decode_port(wire.encode_port(port, wire.OFP15), wire.OFP15) == port


@given(MESSAGES, st.sampled_from(VERSIONS), st.data())
def test_a_damaged_message_raises_wire_error_or_decodes(
    message: Any, version: int, draw: st.DataObject
) -> None:
    damaged = bytearray(wire.encode_message(message, version, framing="native"))
    for _ in range(draw.draw(st.integers(1, 4))):
        damaged[draw.draw(st.integers(0, len(damaged) - 1))] = draw.draw(U8)
    with contextlib.suppress(wire.WireError):
        wire.decode_message(bytes(damaged))


DECODERS = (
    *(wire.decode_message, wire.decode_action, wire.decode_field, wire.decode_header, wire.decode_port),
    lambda data: wire.decode_port(data, wire.OFP15),
)


@given(st.binary(max_size=200))
def test_any_bytes_raise_wire_error_or_decode(data: bytes) -> None:
    for decode in DECODERS:
        with contextlib.suppress(wire.WireError):
            decode(data)


@pytest.mark.parametrize("message", EVERY, ids=lambda message: type(message).__name__)
def test_cut_message_is_truncated_at_every_length(message: Any) -> None:
    data = wire.encode_message(message)
    for size in range(len(data)):
        with pytest.raises(wire.Truncated):
            wire.decode_message(data[:size])


@pytest.mark.parametrize("message", FIXED, ids=lambda message: type(message).__name__)
def test_a_short_message_with_the_right_length_field_is_truncated(message: Any) -> None:
    data = wire.encode_message(message)
    for size in set(range(8, len(data))) - WHOLE.get(id(message), set()):
        with pytest.raises(wire.Truncated) as caught:
            wire.decode_message(resized(data, size))
        assert "." in caught.value.field


@pytest.mark.parametrize("framing", ["experimenter", "native"])
@pytest.mark.parametrize("version", [wire.OFP13, wire.OFP15])
def test_an_alarm_of_an_earlier_agent_has_no_allowance(version: int, framing: wire.Framing) -> None:
    sent = replace(ALARM, allowance_bytes=58_000)
    data = wire.encode_message(sent, version, framing=framing)
    assert wire.decode_message(resized(data, len(data) - 8)) == wire.decode_message(
        wire.encode_message(replace(sent, allowance_bytes=0), version, framing=framing)
    )


@pytest.mark.parametrize("message", FIXED, ids=lambda message: type(message).__name__)
def test_left_over_bytes_are_refused(message: Any) -> None:
    data = wire.encode_message(message)
    with pytest.raises(wire.BadLength):
        wire.decode_message(data + b"\0")
    with pytest.raises((wire.BadLength, wire.Truncated)):
        wire.decode_message(resized(data, len(data) + 1))


@pytest.mark.parametrize("action", EVERY_ACTION, ids=lambda action: type(action).__name__)
def test_an_action_of_any_wrong_length_is_refused(action: Any) -> None:
    data = wire.encode_action(action)
    for size in range(len(data)):
        with pytest.raises(wire.Truncated):
            wire.decode_action(data[:size])
        with pytest.raises(wire.Truncated):
            wire.decode_action(resized(data, size))
    with pytest.raises(wire.BadLength):
        wire.decode_action(data + b"\0")
    with pytest.raises(wire.BadLength):
        wire.decode_action(resized(data, 24))


def test_truncation_names_the_first_missing_field() -> None:
    with pytest.raises(wire.Truncated, match=r"port_config\.rtt_us: missing after 15 bytes"):
        wire.decode_message(resized(wire.encode_message(CONFIG), 31))


BAD_BYTES = [
    (CONFIG, 20, b"\0\0\x40\0", wire.BadValue, "port_config.flags"),
    (CONFIG, 68, b"\2", wire.BadValue, "port_config.off"),
    (CONFIG, 58, b"\0\3", wire.BadValue, "port_config.mark_mode"),
    (EVERY[-1], 10, b"\0\x63", wire.BadValue, "ofp_error.exp_type"),
    (ALARM, 0, b"\5", wire.UnknownType, "ofp_header.version"),
    (ALARM, 1, b"\x0e", wire.UnknownType, "ofp_header.type"),
    (ALARM, 8, b"\0\0\x23\x20", wire.UnknownType, "ofp_experimenter.experimenter"),
    (ALARM, 12, b"\0\0\0\x63", wire.UnknownType, "ofp_experimenter.exp_type"),
    (COUNTERS, 8, b"\0\1", wire.UnknownType, "ofp_multipart.type"),
    (COUNTERS, 20, b"\0\0\0\2", wire.UnknownType, "ofp_multipart.exp_type"),
    (REPORT, 24, b"\2", wire.BadValue, "flow_report.roll_called"),
    (REPORT, 32, b"\0", wire.BadValue, "flow_record.kind"),
    (REPORT, 32, b"\5", wire.BadValue, "flow_record.kind"),
    (REPORT, 33, b"\0", wire.BadValue, "flow.ip_version"),
    (REPORT, 36, b"\1", wire.BadValue, "flow.address"),
    (REPORT, 116, b"\4", wire.BadValue, "flow_record.reason"),
    (ARM, 20, b"\0\3", wire.Truncated, "arm.count"),
    (ARM, 20, b"\0\1", wire.BadLength, "arm.count"),
    (ARM, 24, b"\5", wire.BadValue, "flow.ip_version"),
    (ARM, 25, b"\0", wire.BadValue, "arm_entry.alpha"),
    (REPORT_CONFIG, 19, b"\1", wire.BadValue, "flow_report_config.kinds"),
    (REPORT_CONFIG, 19, b"\x20", wire.BadValue, "flow_report_config.kinds"),
    (REFLEX, 24, b"\2", wire.BadValue, "reflex.on"),
]


@pytest.mark.parametrize(("message", "at", "octets", "error", "field"), BAD_BYTES)
def test_the_error_names_the_bad_field_of_a_message(
    message: Any, at: int, octets: bytes, error: type, field: str
) -> None:
    with pytest.raises(error) as caught:
        wire.decode_message(patched(wire.encode_message(message), at, octets))
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("at", "octets", "error", "field"),
    [
        (0, b"\0\0", wire.UnknownType, "ofp_action.type"),
        (4, b"\0\0\x23\x20", wire.UnknownType, "ofp_action.experimenter"),
        (8, b"\0\x63", wire.UnknownType, "ofp_action.subtype"),
        (10, b"\0", wire.BadValue, "mod_window.alpha"),
    ],
)
def test_the_error_names_the_bad_field_of_an_action(at: int, octets: bytes, error: type, field: str) -> None:
    with pytest.raises(error) as caught:
        wire.decode_action(patched(wire.encode_action(wire.ModWindow(1536)), at, octets))
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (wire.PortConfig(-1), "port_config.port_no"),
        (wire.PortConfig(2**32), "port_config.port_no"),
        (wire.PortConfig(1, k_pkts=1.5), "port_config.k_pkts"),  # type: ignore[arg-type]
        (wire.PortConfig(1, k_pkts=None), "port_config.k_pkts"),  # type: ignore[arg-type]
        (wire.PortConfig(1, flags=16384), "port_config.flags"),  # type: ignore[arg-type]
        (wire.PortConfig(1, mark_mode=3), "port_config.mark_mode"),  # type: ignore[arg-type]
        (wire.BufAlarm(wire.OfpPort(1, hw_addr="0a:00"), 0, 0, 0), "ofp_port.hw_addr"),
        (wire.BufAlarm(wire.OfpPort(1, name=b"x" * 17), 0, 0, 0), "ofp_port.name"),
        (wire.BufAlarm(wire.OfpPort(1, name=b"a\0b"), 0, 0, 0), "ofp_port.name"),
        (wire.BufAlarm(wire.OfpPort(1, ethernet=False), 0, 0, 0), "ofp_port.properties"),
        (wire.BufAlarm(wire.OfpPort(1, properties=(b"\0\4\0\4",)), 0, 0, 0), "ofp_port.properties"),
        (wire.FlowReport((RECORD._replace(kind=5),)), "flow_record.kind"),  # type: ignore[arg-type]
        (wire.FlowReport((RECORD._replace(reason=4),)), "flow_record.reason"),  # type: ignore[arg-type]
        (wire.FlowReport((RECORD._replace(src="10.0.0.1"),)), "flow.address"),  # type: ignore[arg-type]
        (wire.FlowReport((RECORD._replace(src=V6[0]),)), "flow.address"),
        (wire.FlowReport((RECORD._replace(mss_dst=-1),)), "flow_record.mss_dst"),
        (wire.FlowReport((RECORD,) * (wire.FLOW_REPORT_MAX + 1)), "ofp_header.length"),
        (wire.FlowReport(lost=-1), "flow_report.lost"),
        (wire.FlowReportConfig(1), "flow_report_config.kinds"),  # type: ignore[arg-type]
        (wire.Arm(3, (ENTRY,) * (wire.ARM_MAX + 1)), "arm.entries"),
        (wire.Arm(3, (replace(ENTRY, alpha=0),)), "arm_entry.alpha"),
        (wire.Arm(3, (replace(ENTRY, dst=V6[0]),)), "flow.address"),
        (wire.Reflex(3, 0, on=2), "reflex.on"),  # type: ignore[arg-type]
        (wire.ExperimenterError(wire.ErrorCode.BAD_PORT, bytes(0x10000)), "ofp_header.length"),
        (wire.PortCountersReply((wire.PortCountersRecord(1),) * 482), "ofp_header.length"),
    ],
)
def test_the_error_names_the_value_that_cannot_be_sent(message: Any, field: str) -> None:
    with pytest.raises(wire.BadValue) as caught:
        wire.encode_message(message)
    assert caught.value.field == field


@pytest.mark.parametrize("action", [wire.ModWindow(1, alpha=0), wire.ModWindow(-1), wire.SetWindow(2**32)])
def test_invalid_action_values_are_refused(action: Any) -> None:
    with pytest.raises(wire.BadValue):
        wire.encode_action(action)


def test_padding_is_ignored_when_received() -> None:
    data = patched(wire.encode_message(ALARM), 20, b"\xff\xff\xff\xff")
    assert wire.decode_message(patched(data, 107, b"\xff")) == ALARM
    action = patched(wire.encode_action(wire.ModWindow(1536)), 11, b"\xff")
    assert wire.decode_action(action) == wire.ModWindow(1536)


@pytest.mark.parametrize(
    "full",
    [
        wire.PortCountersReply((wire.PortCountersRecord(1),) * 454),
        wire.FlowReport((RECORD,) * 744),
        wire.Arm(3, (ENTRY,) * 1023),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_message_with_the_most_records_fits(full: Any) -> None:
    assert wire.decode_message(wire.encode_message(full)) == full
    assert (wire.PORT_COUNTERS_MAX, wire.FLOW_REPORT_MAX, wire.ARM_MAX) == (454, 744, 1023)


def test_malformed_extension_messages_are_recognized() -> None:
    assert wire.is_extension_message(wire.encode_message(ALARM)[:12])
    assert not wire.is_extension_message(wire.encode_message(ALARM)[:11])
    assert not wire.is_extension_message(b"")
    assert not wire.is_extension_message(patched(wire.encode_message(COUNTERS), 8, b"\0\4"))


def test_each_error_has_the_code_that_a_switch_sends() -> None:
    assert wire.Truncated("f", "p").code is wire.ErrorCode.BAD_MESSAGE
    assert wire.BadLength("f", "p").code is wire.ErrorCode.BAD_MESSAGE
    assert wire.BadValue("f", "p").code is wire.ErrorCode.BAD_VALUE
    assert wire.UnknownType("f", "p").code is wire.ErrorCode.UNKNOWN_TYPE


def test_counters_keep_flags_of_later_versions() -> None:
    record = wire.PortCountersRecord(1, flags=wire.PortCountersFlags(0x80000001))
    reply = wire.PortCountersReply((record,))
    assert wire.decode_message(wire.encode_message(reply)) == reply


def test_an_unknown_framing_is_refused() -> None:
    with pytest.raises(wire.BadValue, match="framing: cannot be 'nativ'"):
        wire.encode_message(ALARM, framing="nativ")  # type: ignore[arg-type]


NATIVE = wire.encode_message(ALARM, framing="native")


def test_a_short_native_message_with_the_right_length_field_is_truncated() -> None:
    for size in set(range(8, len(NATIVE))) - {EARLIER_ALARM_LENGTH - 8}:
        with pytest.raises(wire.Truncated):
            wire.decode_message(resized(NATIVE, size))
    with pytest.raises(wire.BadLength):
        wire.decode_message(resized(NATIVE, len(NATIVE) + 1))


PORT = wire.OfpPort(3, name=b"s1-eth3", curr_speed=10**7, properties=(b"\0\4\0\x08\0\0\0\5", b"\0\1\0\5x"))
PORT_BYTES = wire.encode_port(PORT, wire.OFP15)


@pytest.mark.parametrize(
    ("at", "octets", "error", "field"),
    [
        (4, b"\0\x27", wire.BadLength, "ofp_port.length"),
        (4, b"\0\xff", wire.Truncated, "ofp_port.length"),
        (4, b"\0\x28", wire.BadLength, "ofp_port"),
        (4, b"\0\x2a", wire.Truncated, "ofp_port_desc_prop.length"),
        (42, b"\0\0", wire.BadLength, "ofp_port_desc_prop.length"),
        (42, b"\0\x18", wire.Truncated, "ofp_port_desc_prop_ethernet.curr_speed"),
        (42, b"\0\x28", wire.BadLength, "ofp_port_desc_prop_ethernet"),
        (74, b"\0\x20", wire.Truncated, "ofp_port_desc_prop.length"),
        (72, b"\0\0", wire.BadValue, "ofp_port_desc_prop.type"),
    ],
)
def test_the_error_names_the_bad_port_property(at: int, octets: bytes, error: type, field: str) -> None:
    with pytest.raises(error) as caught:
        wire.decode_port(patched(PORT_BYTES, at, octets), wire.OFP15)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("port", "field"),
    [
        (replace(PORT, properties=(b"\0\0\0\4",)), "ofp_port.properties"),
        (replace(PORT, properties=(b"\0\4\0\5",)), "ofp_port.properties"),
        (replace(PORT, properties=(b"\0\4\0",)), "ofp_port.properties"),
        (replace(PORT, properties=(b"",)), "ofp_port.properties"),
        (replace(PORT, ethernet=False), "ofp_port.ethernet"),
    ],
)
def test_ports_that_15_cannot_represent_are_refused(port: wire.OfpPort, field: str) -> None:
    with pytest.raises(wire.BadValue) as caught:
        wire.encode_port(port, wire.OFP15)
    assert caught.value.field == field


WINDOW = wire.encode_field(wire.TcpWindow(0x0400, 0xFC00))


@pytest.mark.parametrize(
    ("at", "octets", "error", "field"),
    [
        (0, b"\x80\0", wire.UnknownType, "oxm.oxm_class"),
        (2, b"\5", wire.UnknownType, "oxm.oxm_field"),
        (2, b"\2", wire.BadLength, "tcp_window"),
        (3, b"\7", wire.BadLength, "oxm.length"),
        (3, b"\x09", wire.Truncated, "oxm.length"),
        (4, b"\0\0\x23\x20", wire.UnknownType, "oxm.experimenter"),
        (8, b"\4\1", wire.BadValue, "tcp_window.value"),
    ],
)
def test_the_error_names_the_bad_part_of_an_oxm_field(
    at: int, octets: bytes, error: type, field: str
) -> None:
    with pytest.raises(error) as caught:
        wire.decode_field(patched(WINDOW, at, octets))
    assert caught.value.field == field


@pytest.mark.parametrize(
    "window", [wire.TcpWindow(0x10000), wire.TcpWindow(1, 0xFF00), wire.TcpWindow(0, 0x10000)]
)
def test_invalid_windows_are_refused(window: wire.TcpWindow) -> None:
    with pytest.raises(wire.BadValue):
        wire.encode_field(window)


RECORD_AT = 32
"""The first record of a PORT_COUNTERS reply. The size of the records stands 8 bytes before it."""


def with_records(record_bytes: int, records: bytes) -> bytes:
    """A PORT_COUNTERS reply of these records."""
    head = wire.encode_message(COUNTERS)[: RECORD_AT - 8]
    data = head + record_bytes.to_bytes(2, "big") + bytes(6) + records
    return patched(data, 2, len(data).to_bytes(2, "big"))


def test_counters_of_other_versions_are_read() -> None:
    """A later version's record has more counters at its end, an earlier one's has fewer."""
    data = wire.encode_message(COUNTERS)
    size = int.from_bytes(data[RECORD_AT - 8 : RECORD_AT - 6], "big")
    ours = [data[RECORD_AT:][:size], data[RECORD_AT:][size:]]
    longer = with_records(size + 8, b"".join(record + b"\xff" * 8 for record in ours))
    assert wire.decode_message(longer) == COUNTERS
    earlier = wire.PortCountersRecord(3, n_i=40, capacity_bps=10**8)
    reply = wire.encode_message(wire.PortCountersReply((earlier,)))
    assert wire.decode_message(with_records(24, reply[RECORD_AT:][:24])) == wire.PortCountersReply((earlier,))


def test_the_cache_of_counters_holds_no_bytes_behind_the_known_ones() -> None:
    data = wire.encode_message(COUNTERS)
    size = int.from_bytes(data[RECORD_AT - 8 : RECORD_AT - 6], "big")
    ours = data[RECORD_AT:][:size]
    before = _decoded.cache_info().misses
    for later in (b"\1", b"\2"):
        wire.decode_message(with_records(60_000, ours[:-1] + b"\7" + later * (60_000 - size)))
    assert _decoded.cache_info().misses == before + 1


@pytest.mark.parametrize("record_bytes", [0, 8, 15, 20, 65535])
def test_impossible_sizes_of_counters_are_refused(record_bytes: int) -> None:
    with pytest.raises(wire.BadValue, match=f"record_bytes: cannot be {record_bytes}"):
        wire.decode_message(with_records(record_bytes, bytes(480)))


def test_a_part_of_a_percentage_above_the_whole_is_refused() -> None:
    data = wire.encode_message(replace(ALARM, non_tcp_percent=100))
    at = len(data) - 22
    assert data[at] == 100
    with pytest.raises(wire.BadValue, match=r"non_tcp_percent: cannot be 101"):
        wire.decode_message(patched(data, at, b"\x65"))
