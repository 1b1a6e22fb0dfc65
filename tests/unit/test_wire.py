"""The codec under hostile input, and round trips of every message and action."""

from __future__ import annotations

import contextlib
from dataclasses import fields
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openflow_ext import wire

U8, U16, U32, U64 = (st.integers(0, 2**bits - 1) for bits in (8, 16, 32, 64))
SIXTEEN_BITS = {"priority"}
SIXTY_FOUR_BITS = {
    *("port_rate_bps", "cookie", "crossing_ns", "capacity_bps", "alarms", "normals", "syns_counted"),
    *("fins_counted", "acks_seen", "clamped", "marked", "drops", "unscaled", "untracked"),
}
PORTS = st.builds(
    wire.OfpPort,
    port_no=U32,
    hw_addr=st.binary(min_size=6, max_size=6).map(lambda octets: octets.hex(":")),
    name=st.binary(max_size=16).filter(lambda name: b"\0" not in name),
    **dict.fromkeys(
        ("config", "state", "curr", "advertised", "supported", "peer", "curr_speed", "max_speed"), U32
    ),
)
SPECIAL: dict[tuple[type, str], st.SearchStrategy[Any]] = {
    (wire.PortConfig, "flags"): st.integers(0, 15).map(wire.PortConfigFlags),
    (wire.PortConfigReply, "flags"): st.integers(0, 15).map(wire.PortConfigFlags),
    (wire.PortConfig, "mark_mode"): st.sampled_from(wire.MarkMode),
    (wire.PortConfigReply, "mark_mode"): st.sampled_from(wire.MarkMode),
    (wire.PortCountersRecord, "flags"): U32.map(wire.PortCountersFlags),
    (wire.ModWindow, "alpha"): st.integers(1, 255),
}


def instances(cls: type) -> st.SearchStrategy[Any]:
    """Every valid value of a message of integer fields (and a port)."""

    def of(name: str) -> st.SearchStrategy[Any]:
        if name == "port" and cls in (wire.BufAlarm, wire.BufNormal):
            return PORTS
        by_size = U16 if name in SIXTEEN_BITS else U64 if name in SIXTY_FOUR_BITS else U32
        return SPECIAL.get((cls, name), by_size)

    return st.builds(cls, **{field.name: of(field.name) for field in fields(cls)})


MESSAGES = st.one_of(
    *(instances(cls) for cls in (wire.BufAlarm, wire.BufNormal, wire.PortConfig, wire.PortConfigReply)),
    instances(wire.PortCountersRequest),
    st.builds(
        wire.PortCountersReply,
        st.lists(instances(wire.PortCountersRecord), max_size=3).map(tuple),
        st.booleans(),
    ),
    st.builds(wire.ExperimenterError, st.sampled_from(wire.ErrorCode), st.binary(max_size=64)),
)
ACTIONS = st.one_of(*(instances(cls) for cls in get_args(wire.Action)))

ALARM = wire.BufAlarm(wire.OfpPort(3, name=b"s1-eth3"), 31, 46934, 10**8, n_i=40)
CONFIG = wire.PortConfig(3, wire.PortConfigFlags.ALARM, k_pkts=30)
COUNTERS = wire.PortCountersReply((wire.PortCountersRecord(1), wire.PortCountersRecord(2)))
FIXED = [ALARM, CONFIG, wire.PortConfigReply(3), wire.PortCountersRequest(), COUNTERS]
EVERY = [*FIXED, wire.ExperimenterError(wire.ErrorCode.BAD_PORT, b"refused")]
EVERY_ACTION = [wire.ModWindow(1536), wire.IncrementNi(), wire.DecrementNi(), wire.SetWindow()]


def resized(data: bytes, size: int) -> bytes:
    """``data`` cut or zero-filled to ``size``, its header telling the truth about that."""
    body = data.ljust(size, b"\0")[:size]
    return body[:2] + size.to_bytes(2, "big") + body[4:]


def patched(data: bytes, at: int, octets: bytes) -> bytes:
    return data[:at] + octets + data[at + len(octets) :]


@given(MESSAGES, U32)
def test_messages_round_trip(message: Any, xid: int) -> None:
    data = wire.encode_message(message, xid=xid)
    header = wire.decode_header(data)
    assert (header.version, header.length, header.xid) == (wire.OFP13, len(data), xid)
    assert wire.is_extension_message(data)
    assert wire.decode_message(data) == message


@given(ACTIONS)
def test_actions_round_trip(action: Any) -> None:
    data = wire.encode_action(action)
    assert len(data) % 8 == 0
    assert wire.is_extension_action(data)
    assert wire.decode_action(data) == action


@given(PORTS)
def test_ports_round_trip(port: wire.OfpPort) -> None:
    assert wire.decode_port(wire.encode_port(port)) == port


@given(MESSAGES, st.data())
def test_damage_raises_wire_error_or_decodes(message: Any, draw: st.DataObject) -> None:
    damaged = bytearray(wire.encode_message(message))
    for _ in range(draw.draw(st.integers(1, 4))):
        damaged[draw.draw(st.integers(0, len(damaged) - 1))] = draw.draw(U8)
    with contextlib.suppress(wire.WireError):
        wire.decode_message(bytes(damaged))


@given(st.binary(max_size=200))
def test_any_bytes_raise_wire_error_or_decode(data: bytes) -> None:
    for decode in (wire.decode_message, wire.decode_action, wire.decode_port, wire.decode_header):
        with contextlib.suppress(wire.WireError):
            decode(data)


@pytest.mark.parametrize("message", EVERY, ids=lambda message: type(message).__name__)
def test_cut_message_is_truncated_at_every_length(message: Any) -> None:
    data = wire.encode_message(message)
    for size in range(len(data)):
        with pytest.raises(wire.Truncated):
            wire.decode_message(data[:size])


@pytest.mark.parametrize("message", FIXED, ids=lambda message: type(message).__name__)
def test_short_message_with_a_true_header_is_truncated(message: Any) -> None:
    data = wire.encode_message(message)
    whole = {24 + 128 * n for n in range(2)} if message is COUNTERS else set()
    for size in set(range(8, len(data))) - whole:
        with pytest.raises(wire.Truncated) as caught:
            wire.decode_message(resized(data, size))
        assert "." in caught.value.field


@pytest.mark.parametrize("message", FIXED, ids=lambda message: type(message).__name__)
def test_bytes_left_over_are_refused(message: Any) -> None:
    data = wire.encode_message(message)
    with pytest.raises(wire.BadLength):
        wire.decode_message(data + b"\0")
    with pytest.raises((wire.BadLength, wire.Truncated)):
        wire.decode_message(resized(data, len(data) + 1))


@pytest.mark.parametrize("action", EVERY_ACTION, ids=lambda action: type(action).__name__)
def test_action_of_every_wrong_length_is_refused(action: Any) -> None:
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
    (CONFIG, 20, b"\0\0\0\x10", wire.BadValue, "port_config.flags"),
    (CONFIG, 58, b"\0\3", wire.BadValue, "port_config.mark_mode"),
    (EVERY[-1], 10, b"\0\x63", wire.BadValue, "ofp_error.exp_type"),
    (ALARM, 0, b"\5", wire.UnknownType, "ofp_header.version"),
    (ALARM, 1, b"\x0e", wire.UnknownType, "ofp_header.type"),
    (ALARM, 8, b"\0\0\x23\x20", wire.UnknownType, "ofp_experimenter.experimenter"),
    (ALARM, 12, b"\0\0\0\x63", wire.UnknownType, "ofp_experimenter.exp_type"),
    (COUNTERS, 8, b"\0\1", wire.UnknownType, "ofp_multipart.type"),
    (COUNTERS, 20, b"\0\0\0\2", wire.UnknownType, "ofp_multipart.exp_type"),
]


@pytest.mark.parametrize(("message", "at", "octets", "error", "field"), BAD_BYTES)
def test_bad_fields_are_named(message: Any, at: int, octets: bytes, error: type, field: str) -> None:
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
def test_bad_action_fields_are_named(at: int, octets: bytes, error: type, field: str) -> None:
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
        (wire.PortConfig(1, flags=16), "port_config.flags"),  # type: ignore[arg-type]
        (wire.PortConfig(1, mark_mode=3), "port_config.mark_mode"),  # type: ignore[arg-type]
        (wire.BufAlarm(wire.OfpPort(1, hw_addr="0a:00"), 0, 0, 0), "ofp_port.hw_addr"),
        (wire.BufAlarm(wire.OfpPort(1, name=b"x" * 17), 0, 0, 0), "ofp_port.name"),
        (wire.BufAlarm(wire.OfpPort(1, name=b"a\0b"), 0, 0, 0), "ofp_port.name"),
        (wire.ExperimenterError(wire.ErrorCode.BAD_PORT, bytes(0x10000)), "ofp_header.length"),
        (wire.PortCountersReply((wire.PortCountersRecord(1),) * 512), "ofp_header.length"),
    ],
)
def test_values_that_do_not_fit_are_named(message: Any, field: str) -> None:
    with pytest.raises(wire.BadValue) as caught:
        wire.encode_message(message)
    assert caught.value.field == field


@pytest.mark.parametrize("action", [wire.ModWindow(1, alpha=0), wire.ModWindow(-1), wire.SetWindow(2**32)])
def test_action_values_that_do_not_fit_are_refused(action: Any) -> None:
    with pytest.raises(wire.BadValue):
        wire.encode_action(action)


def test_padding_is_ignored_when_received() -> None:
    data = patched(wire.encode_message(ALARM), 20, b"\xff\xff\xff\xff")
    assert wire.decode_message(patched(data, 106, b"\xff\xff")) == ALARM
    action = patched(wire.encode_action(wire.ModWindow(1536)), 11, b"\xff")
    assert wire.decode_action(action) == wire.ModWindow(1536)


def test_most_records_of_one_reply_fit() -> None:
    full = wire.PortCountersReply((wire.PortCountersRecord(1),) * wire.PORT_COUNTERS_MAX)
    assert wire.decode_message(wire.encode_message(full)) == full
    assert wire.PORT_COUNTERS_MAX == 511


def test_malformed_messages_of_ours_are_still_told_as_ours() -> None:
    assert wire.is_extension_message(wire.encode_message(ALARM)[:12])
    assert not wire.is_extension_message(wire.encode_message(ALARM)[:11])
    assert not wire.is_extension_message(b"")
    assert not wire.is_extension_message(patched(wire.encode_message(COUNTERS), 8, b"\0\4"))


def test_errors_carry_what_a_switch_answers() -> None:
    assert wire.Truncated("f", "p").code is wire.ErrorCode.BAD_MESSAGE
    assert wire.BadLength("f", "p").code is wire.ErrorCode.BAD_MESSAGE
    assert wire.BadValue("f", "p").code is wire.ErrorCode.BAD_VALUE
    assert wire.UnknownType("f", "p").code is wire.ErrorCode.UNKNOWN_TYPE


def test_counters_keep_flags_of_later_versions() -> None:
    record = wire.PortCountersRecord(1, flags=wire.PortCountersFlags(0x80000001))
    reply = wire.PortCountersReply((record,))
    assert wire.decode_message(wire.encode_message(reply)) == reply
