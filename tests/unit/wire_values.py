"""Hypothesis strategies for every value that goes over the wire; used by the codec's and registry's tests."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, get_args

from hypothesis import strategies as st

from openflow_ext import wire

VERSIONS = (wire.OFP13, wire.OFP15)
U8, U16, U32, U64 = (st.integers(0, 2**bits - 1) for bits in (8, 16, 32, 64))
EIGHT_BITS = {"scale_src", "scale_dst", "table_id"}
SIXTEEN_BITS = {"priority", "src_port", "dst_port", "mss_src", "mss_dst", "hard_timeout_s"}
SIXTY_FOUR_BITS = {
    *("port_rate_bps", "cookie", "crossing_ns", "capacity_bps", "alarms", "normals", "syns_counted"),
    *("fins_counted", "acks_seen", "clamped", "marked", "drops", "unscaled", "untracked"),
    *("sent_bytes", "first_ns", "last_ns", "when_ns", "lost"),
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
    (wire.PortConfig, "flags"): st.integers(0, 15).map(wire.PortConfigFlags),
    (wire.PortConfigReply, "flags"): st.integers(0, 15).map(wire.PortConfigFlags),
    (wire.PortConfig, "mark_mode"): st.sampled_from(wire.MarkMode),
    (wire.PortConfigReply, "mark_mode"): st.sampled_from(wire.MarkMode),
    (wire.PortCountersRecord, "flags"): U32.map(wire.PortCountersFlags),
    (wire.ModWindow, "alpha"): st.integers(1, 255),
    (wire.ArmEntry, "alpha"): st.integers(1, 255),
    (wire.FlowRecord, "kind"): st.sampled_from(wire.FlowKind),
    (wire.FlowRecord, "reason"): st.sampled_from(wire.CloseReason),
    (wire.FlowReportConfig, "kinds"): st.integers(0, 15).map(lambda bits: wire.FlowKinds(bits << 1)),
    (wire.Reflex, "on"): st.booleans(),
}


def field_values(cls: type, name: str) -> st.SearchStrategy[Any]:
    sizes = ((EIGHT_BITS, U8), (SIXTEEN_BITS, U16), (SIXTY_FOUR_BITS, U64))
    by_size = next((strategy for names, strategy in sizes if name in names), U32)
    return SPECIAL.get((cls, name), by_size)


def instances(cls: type) -> st.SearchStrategy[Any]:
    """Every valid value of a message of integer fields (and a port)."""
    return st.builds(cls, **{field.name: field_values(cls, field.name) for field in fields(cls)})


def flows(cls: type) -> st.SearchStrategy[Any]:
    """Every valid value of a record or entry, whose two addresses are of one IP version."""
    names = [name for name in cls.__annotations__ if name not in ("src", "dst")]
    rest = st.fixed_dictionaries({name: field_values(cls, name) for name in names})
    return st.builds(lambda pair, values: cls(src=pair[0], dst=pair[1], **values), ADDRESSES, rest)


MESSAGES = st.one_of(
    *(instances(cls) for cls in (wire.BufAlarm, wire.BufNormal, wire.PortConfig, wire.PortConfigReply)),
    *(instances(cls) for cls in (wire.PortCountersRequest, wire.FlowReportConfig, wire.Reflex)),
    st.builds(wire.FlowReport, st.lists(flows(wire.FlowRecord), max_size=3).map(tuple), U64),
    st.builds(wire.Arm, U32, st.lists(flows(wire.ArmEntry), max_size=3).map(tuple)),
    st.builds(
        wire.PortCountersReply,
        st.lists(instances(wire.PortCountersRecord), max_size=3).map(tuple),
        st.booleans(),
    ),
    st.builds(wire.ExperimenterError, st.sampled_from(wire.ErrorCode), st.binary(max_size=64)),
)
ACTIONS = st.one_of(*(instances(cls) for cls in get_args(wire.Action)))
