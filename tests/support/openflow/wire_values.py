"""Hypothesis strategies for every value that goes over the wire; used by the codec's and registry's tests."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from hypothesis import strategies as st

from openflow_ext import wire
from openflow_ext.wire import actions, codec, flows, port_counters
from openflow_ext.wire.layout import Layout

VERSIONS = (wire.OFP13, wire.OFP15)
U8, U16, U32, U64 = (st.integers(0, 2**bits - 1) for bits in (8, 16, 32, 64))
BY_CODE = {"B": U8, "H": U16, "I": U32, "Q": U64}
LAYOUTS: dict[type, Layout] = {
    **{cls: message.layout for cls, message in wire.EXPERIMENTER_MESSAGES.items()},
    **{cls: layout for cls, (_, layout) in actions._FORMATS.items()},
    wire.PortCountersRecord: port_counters._RECORD,
    wire.PortCountersRequest: codec._COUNTERS_REQUEST,
    wire.FlowRecord: flows._RECORD,
    wire.ArmEntry: flows._ENTRY,
}
SPEEDS = ("curr", "advertised", "supported", "peer", "curr_speed", "max_speed")
PROPERTIES = st.builds(
    lambda of_type, data: of_type.to_bytes(2, "big") + (4 + len(data)).to_bytes(2, "big") + data,
    st.integers(1, 0xFFFF),
    st.binary(max_size=20),
)


def ports(**more: st.SearchStrategy[Any]) -> st.SearchStrategy[wire.OfpPort]:
    return st.builds(
        wire.OfpPort,
        port_no=U32,
        hw_addr=st.binary(min_size=6, max_size=6).map(lambda octets: octets.hex(":")),
        name=st.binary(max_size=16).filter(lambda name: b"\0" not in name),
        **dict.fromkeys(("config", "state"), U32),
        **more,
    )


PORTS_13 = ports(**dict.fromkeys(SPEEDS, U32))
PORT_PROPERTIES = st.lists(PROPERTIES, max_size=3).map(tuple)
PORTS = st.one_of(
    ports(properties=PORT_PROPERTIES, **dict.fromkeys(SPEEDS, U32)),
    ports(properties=PORT_PROPERTIES, ethernet=st.just(False)),
)
MASKED_WINDOWS = st.builds(lambda value, mask: wire.TcpWindow(value & mask, mask), U16, U16)
FIELDS = st.builds(wire.TcpWindow, U16) | MASKED_WINDOWS
ADDRESSES = st.one_of(*(st.tuples(st.ip_addresses(v=v), st.ip_addresses(v=v)) for v in (4, 6)))
SPECIAL: dict[tuple[type, str], st.SearchStrategy[Any]] = {
    (wire.BufAlarm, "port"): PORTS_13,
    (wire.BufNormal, "port"): PORTS_13,
    (wire.BufAlarm, "non_tcp_percent"): st.integers(0, 100),
    (wire.BufNormal, "non_tcp_percent"): st.integers(0, 100),
    (wire.PortConfig, "off"): st.booleans(),
    (wire.PortConfigReply, "off"): st.booleans(),
    (wire.PortConfig, "flags"): st.integers(0, 8191).map(wire.PortConfigFlags),
    (wire.PortConfigReply, "flags"): st.integers(0, 8191).map(wire.PortConfigFlags),
    (wire.PortConfig, "mark_mode"): st.sampled_from(wire.MarkMode),
    (wire.PortConfigReply, "mark_mode"): st.sampled_from(wire.MarkMode),
    (wire.PortCountersRecord, "flags"): U32.map(wire.PortCountersFlags),
    (wire.ModWindow, "alpha"): st.integers(1, 255),
    (wire.ArmEntry, "alpha"): st.integers(1, 255),
    (wire.FlowRecord, "kind"): st.sampled_from(wire.FlowKind),
    (wire.FlowRecord, "reason"): st.sampled_from(wire.CloseReason),
    (wire.FlowReport, "roll_called"): st.booleans(),
    (wire.FlowReport, "now_ms"): st.integers(0, 999),
    (wire.FlowReportConfig, "kinds"): st.integers(0, 15).map(lambda bits: wire.FlowKinds(bits << 1)),
    (wire.Reflex, "on"): st.booleans(),
}


def field_values(cls: type, name: str) -> st.SearchStrategy[Any]:
    """Every valid value of a field: every integer of its size, or what SPECIAL says."""
    if (cls, name) in SPECIAL:
        return SPECIAL[cls, name]
    return BY_CODE[LAYOUTS[cls].codes[name]]


def instances(cls: type) -> st.SearchStrategy[Any]:
    """Every valid value of a message, action or record."""
    return st.builds(cls, **{field.name: field_values(cls, field.name) for field in fields(cls)})


def flow_values(cls: type) -> st.SearchStrategy[Any]:
    """Every valid value of a FlowRecord or ArmEntry, whose two addresses are of one IP version."""
    names = [name for name in cls.__annotations__ if name not in ("src", "dst")]
    rest = st.fixed_dictionaries({name: field_values(cls, name) for name in names})
    return st.builds(lambda pair, values: cls(src=pair[0], dst=pair[1], **values), ADDRESSES, rest)


def short_lists(items: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(items, max_size=3).map(tuple)


SPECIAL |= {
    (wire.FlowReport, "records"): short_lists(flow_values(wire.FlowRecord)),
    (wire.Arm, "entries"): short_lists(flow_values(wire.ArmEntry)),
}
MESSAGES = st.one_of(
    *(instances(cls) for cls in (*wire.EXPERIMENTER_MESSAGES, wire.PortCountersRequest)),
    st.builds(wire.PortCountersReply, short_lists(instances(wire.PortCountersRecord)), st.booleans()),
    st.builds(wire.ExperimenterError, st.sampled_from(wire.ErrorCode), st.binary(max_size=64)),
)
ACTIONS = st.one_of(*(instances(cls) for cls in wire.ACTIONS))
