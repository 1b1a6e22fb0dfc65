"""tcp_window in an engine's matches, native framing, ports of 1.5, and guards of the engine's parsers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from openflow_ext import engine, registry, wire
from tests.support.openflow.installed_engine import EMPTY_MATCH, WIRE_PORT, Engine

ALARM = wire.BufAlarm(WIRE_PORT, 31, 46934, 10**8, n_i=4)
NORMAL = wire.BufNormal(WIRE_PORT, 4, 6056, 10**8)
NO_ACTION = b"\0\0\0\x10\0\0\0\1" + bytes(8)


@pytest.fixture(params=engine.ENGINES)
def eng13(request: pytest.FixtureRequest) -> Engine:
    registry.malformed.clear()
    return Engine(request.param)


@pytest.fixture(params=engine.ENGINES)
def eng15(request: pytest.FixtureRequest) -> Engine:
    registry.malformed.clear()
    return Engine(request.param, wire.OFP15)


def match_of(field: bytes) -> bytes:
    length = 4 + len(field)
    return b"\0\1" + length.to_bytes(2, "big") + field + bytes(-length % 8)


WINDOWS = [
    (1500, wire.TcpWindow(1500)),
    ((0x0400, 0xFC00), wire.TcpWindow(0x0400, 0xFC00)),
    ((0x04FF, 0xFF00), wire.TcpWindow(0x0400, 0xFF00)),
    ((0, 0xFFFF), wire.TcpWindow(0, 0xFFFF)),
]


@pytest.mark.parametrize(("given", "field"), WINDOWS)
def test_tcp_window_survives_bytes_and_json(eng: Engine, given: Any, field: wire.TcpWindow) -> None:
    plain = {"in_port": 1, "eth_type": 0x800, "ip_proto": 6, "tcp_dst": 80}
    match = eng.parser.OFPMatch(**plain, tcp_window=given)
    buf = bytearray()
    match.serialize(buf, 0)
    assert bytes(buf)[: match.length].endswith(wire.encode_field(field))  # after ip_proto
    value = field.value if field.mask is None else (field.value, field.mask)
    for again in (
        eng.parser.OFPMatch.parser(bytes(buf), 0),
        eng.parser.OFPMatch.from_jsondict(json.loads(json.dumps(match.to_jsondict()))["OFPMatch"]),
    ):
        assert dict(again.items()) == {**plain, "tcp_window": value}
        copy = bytearray()
        again.serialize(copy, 0)
        assert copy == buf


def test_tcp_window_is_sent_in_a_flow_mod_and_read_from_flow_statistics(eng: Engine) -> None:
    match = eng.parser.OFPMatch(eth_type=0x800, ip_proto=6, tcp_window=(0, 0xFF00))
    flow_mod = eng.parser.OFPFlowMod(eng.datapath, match=match, instructions=[])
    flow_mod.serialize()
    assert wire.encode_field(wire.TcpWindow(0, 0xFF00)) in bytes(flow_mod.buf)
    reply = eng.receive(eng.flow_stats(NO_ACTION, match_of(wire.encode_field(wire.TcpWindow(7)))))
    assert reply.body[0].match["tcp_window"] == 7
    assert registry.malformed == {}


def test_tcp_window_has_a_number_and_other_fields_keep_theirs(eng: Engine) -> None:
    assert eng.ofproto.OFPXMT_OFB_TCP_WINDOW == wire.OFPXMT_OFB_TCP_WINDOW
    assert eng.ofproto.oxm_from_user("tcp_flags", 2)[1] == b"\0\2"  # an existing field


FIELD = wire.encode_field(wire.TcpWindow(7))


@pytest.mark.parametrize(
    "field",
    [
        FIELD[:3] + b"\7" + FIELD[4:] + b"\0",  # a value of three bytes
        FIELD[:3] + b"\4" + FIELD[4:8],  # no value
        FIELD[:2] + b"\4" + FIELD[3:],  # field number 2 of the extension
    ],
)
def test_message_with_a_malformed_field_is_dropped(eng: Engine, field: bytes) -> None:
    assert eng.receive(eng.flow_stats(NO_ACTION, match_of(field))) is None
    assert registry.malformed == {0x2A: 1}


def test_message_that_ends_within_a_match_is_dropped(eng: Engine) -> None:
    """Without the guard, the error leaves the engine's receive loop in 1.3 and ends the session."""
    data = eng.flow_stats(NO_ACTION, match_of(FIELD))
    cut = data[: data.index(FIELD) + 6]
    assert eng.receive(cut[:2] + len(cut).to_bytes(2, "big") + cut[4:]) is None
    assert registry.malformed == {0x2A: 1}


@pytest.mark.parametrize("message", [ALARM, NORMAL], ids=lambda message: type(message).__name__)
def test_native_messages_arrive_as_the_same_event(eng13: Engine, message: Any) -> None:
    data = wire.encode_message(message, framing="native")
    native, plain = eng13.receive(data), eng13.receive(eng13.encode(message))
    assert type(native) is type(plain)
    assert native.to_jsondict() == plain.to_jsondict()
    assert type(eng13.ofp_event.ofp_msg_to_ev(native)).__name__ == f"EventOFP{type(message).__name__}"
    assert (native.msg_type, native.buf) == (data[1], data)
    native.serialize()
    assert bytes(native.buf) == data
    assert type(native).cls_msg_type == wire.OFPT_EXPERIMENTER


@pytest.mark.parametrize("message", [ALARM, NORMAL], ids=lambda message: type(message).__name__)
def test_native_message_cut_at_any_length_is_dropped(eng13: Engine, message: Any) -> None:
    data = wire.encode_message(message, framing="native")
    sizes = set(range(8, len(data))) - {len(data) - 8}  # an earlier agent sends 8 bytes less
    for size in sizes:
        assert eng13.receive(data[:2] + size.to_bytes(2, "big") + data[4:size]) is None
    assert registry.malformed == {0x2A: len(sizes)}


def test_the_engine_parses_types_30_and_31_of_15(eng15: Engine) -> None:
    role_status = b"\6\x1e\0\x18\0\0\0\1" + (2).to_bytes(4, "big") + bytes(12)
    assert type(eng15.receive(role_status)) is eng15.parser.OFPRoleStatus


def test_unknown_message_type_is_dropped(eng: Engine) -> None:
    assert eng.receive(bytes([eng.version]) + b"\x63\0\x08\0\0\0\0") is None
    assert registry.malformed == {0x2A: 1}


@pytest.mark.timeout(10)
def test_property_of_length_0_is_refused(eng15: Engine) -> None:
    """Without the guard, Ryu's 1.5 parser appends to a list forever."""
    port = bytearray(wire.encode_port(WIRE_PORT, wire.OFP15))
    port[42:44] = b"\0\0"
    body = b"\0\x0d\0\0\0\0\0\0" + port
    assert eng15.receive(b"\6\x13" + (8 + len(body)).to_bytes(2, "big") + bytes(4) + body) is None
    assert registry.malformed == {0x2A: 1}
    assert eng15.receive(eng15.flow_stats(NO_ACTION, EMPTY_MATCH)) is not None


def test_an_alarm_keeps_unknown_properties_of_its_port(eng15: Engine) -> None:
    port = replace(WIRE_PORT, properties=(b"\0\4\0\x08\0\0\0\5", b"\xff\xff\0\x09\0\0\x23\x20x"))
    data = eng15.encode(wire.BufAlarm(port, 31, 46934, 10**8))
    msg = eng15.receive(data)
    assert [prop.length for prop in msg.port.properties] == [32, 8, 9]
    jsondict = json.loads(json.dumps(msg.to_jsondict()))
    for again in (msg, eng15.ofproto_parser.ofp_msg_from_jsondict(eng15.datapath, jsondict)):
        again.serialize()
        assert bytes(again.buf) == data
    data = eng15.encode(wire.BufAlarm(wire.OfpPort(3, ethernet=False), 31, 46934, 10**8))
    msg = eng15.receive(data)
    msg.serialize()
    assert (msg.port.properties, bytes(msg.buf)) == ([], data)
