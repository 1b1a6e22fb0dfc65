"""The split of FLOW_MODs: Open vSwitch's part as Ryu reads it, the extension's part as a Rule."""

from __future__ import annotations

import ipaddress
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openflow_ext import wire
from openflow_ext.switch import openflow as of
from openflow_ext.switch import split
from openflow_ext.switch.errors import Refused
from openflow_ext.switch.rules import CountOp, Rule, TcpMatch, WindowOp
from tests.unit.flowmods import (
    APPLY,
    TCP4,
    WRITE,
    ext,
    ext_raw,
    flow_mod,
    instruction,
    ofproto,
    output,
    parsed,
    parser,
)

MOD = wire.ModWindow(30000)
ALL_BITS = "255.255.255.255"


def rule_of(message: bytes) -> Rule:
    return split.rule_for(of.FlowMod.parse(message), split.split(message).actions)


def refusal_of(message: bytes) -> tuple[int, int]:
    with pytest.raises(Refused) as caught:
        rule_of(message)
    return caught.value.error_type, caught.value.code


# -- Open vSwitch's part -----------------------------------------------------------------------------

ACTIONS = st.one_of(
    st.builds(output, st.integers(1, 100)),
    st.builds(parser.OFPActionSetQueue, st.integers(0, 7)),
    st.builds(parser.OFPActionGroup, st.integers(0, 9)),
    st.builds(lambda vid: parser.OFPActionSetField(vlan_vid=0x1000 | vid), st.integers(1, 4094)),
    st.just(parser.OFPActionPopVlan()),
)
EXT_ACTIONS = st.one_of(
    st.builds(wire.ModWindow, st.integers(1, 1 << 29), st.integers(1, 255)),
    st.builds(wire.SetWindow, st.integers(1, 1 << 29)),
    st.builds(wire.IncrementNi),
    st.builds(wire.DecrementNi, st.integers(1, 50)),
).map(ext)
OTHERS = st.one_of(
    st.builds(parser.OFPInstructionGotoTable, st.integers(1, 200)),
    st.builds(parser.OFPInstructionMeter, st.integers(1, 9)),
    st.builds(parser.OFPInstructionWriteMetadata, st.integers(0, 99), st.integers(1, 99)),
)
MATCHES = st.fixed_dictionaries(
    {},
    optional={
        "in_port": st.integers(1, 100),
        "eth_src": st.just("00:11:22:33:44:55"),
        "vlan_vid": st.integers(0x1001, 0x1FFE),
        "ipv4_dst": st.tuples(st.ip_addresses(v=4).map(str), st.just("255.255.0.0")),
        "tcp_flags": st.integers(0, 0xFFF),
    },
)


def is_ext(action: Any) -> bool:
    return isinstance(action, parser.OFPActionExperimenterUnknown)


@st.composite
def entries(draw: st.DrawFn) -> tuple[list[Any], list[Any], int]:
    """Instructions; the same as Open vSwitch shall get them; how many of our actions were in them."""
    whole, rest, taken = [], [], 0
    for kind in draw(st.lists(st.sampled_from([APPLY, WRITE, 0]), max_size=4)):
        if kind == 0:
            other = draw(OTHERS)
            whole.append(other)
            rest.append(other)
            continue
        actions = draw(st.lists(st.one_of(ACTIONS, EXT_ACTIONS), max_size=6))
        plain = [action for action in actions if not is_ext(action)]
        whole.append(instruction(kind, *actions))
        if plain or not actions:
            rest.append(instruction(kind, *plain))
        taken += len(actions) - len(plain)
    return whole, rest, taken


@given(entries(), MATCHES, st.integers(0, 0xFFFFFFFF), st.integers(0, 0xFFFF), st.integers(0, 4))
def test_open_vswitch_gets_the_entry_without_our_actions(
    entry: tuple[list[Any], list[Any], int], match: dict[str, Any], xid: int, priority: int, command: int
) -> None:
    whole, rest, taken = entry
    fields: dict[str, Any] = {"priority": priority, "command": command, "cookie": 7, "table_id": 3}
    fields |= {"match": match, "xid": xid, "idle_timeout": 5, "flags": 1}
    parts = split.split(flow_mod(instructions=whole, **fields))
    expected = flow_mod(instructions=rest, **fields)
    assert parts.rest == expected
    assert parsed(parts.rest).to_jsondict() == parsed(expected).to_jsondict()
    assert len(parts.actions) == taken


def test_an_entry_without_our_actions_is_left_as_it_is() -> None:
    message = flow_mod(actions=[output(1), parser.NXActionResubmitTable(table_id=2)])
    assert split.split(message) == split.Split(message, ())
    assert not split.may_extend(message)


def test_our_id_elsewhere_in_an_entry_is_no_action_of_ours() -> None:
    message = flow_mod({"eth_type": 0x0800, "ipv4_src": "0.87.101.105"}, [output(1)])
    assert split.may_extend(message)
    assert split.split(message) == split.Split(message, ())


@given(st.binary(max_size=40), st.integers(0, 120))
def test_lying_lengths_raise_value_error_and_nothing_else(garbage: bytes, cut: int) -> None:
    message = flow_mod(actions=[ext(MOD), output(1)])
    for hostile in (message[:cut], message[:56] + garbage, message[:48] + garbage):
        try:
            split.split(hostile)
        except ValueError:
            continue


# -- the extension's part ----------------------------------------------------------------------------


def test_mod_window_on_a_five_tuple() -> None:
    match = {**TCP4, "ipv4_src": "10.0.0.1", "ipv4_dst": "10.0.0.2", "tcp_src": 5001, "tcp_dst": 40000}
    message = flow_mod(
        match,
        [ext(wire.ModWindow(30000, 7))],
        priority=65535,
        cookie=0xAB,
        table_id=2,
        idle_timeout=5,
        hard_timeout=9,
    )
    rule = rule_of(message)
    assert rule == Rule(
        table_id=2,
        priority=65535,
        cookie=0xAB,
        match=TcpMatch(4, ipaddress.ip_network("10.0.0.1"), ipaddress.ip_network("10.0.0.2"), 5001, 40000),
        window_op=WindowOp.MOD_WINDOW,
        window_bytes=30000,
        alpha=7,
        idle_timeout_s=5,
        hard_timeout_s=9,
    )
    assert rule.match.exact


def test_write_actions_and_both_kinds_of_operation() -> None:
    instructions = [
        instruction(WRITE, ext(wire.SetWindow())),
        instruction(APPLY, ext(wire.IncrementNi(4)), output(4)),
    ]
    rule = rule_of(flow_mod(instructions=instructions))
    assert (rule.window_op, rule.count_op, rule.count_port) == (
        WindowOp.FAIR_SHARE,
        CountOp.INCREMENT_NI,
        4,
    )
    decrement = rule_of(flow_mod(actions=[ext(wire.DecrementNi())]))
    assert (decrement.count_op, decrement.count_port) == (CountOp.DECREMENT_NI, None)
    value = rule_of(flow_mod(actions=[ext(wire.SetWindow(1536))]))
    assert (value.window_op, value.window_bytes) == (WindowOp.SET_WINDOW, 1536)


def test_ipv6_networks_and_in_port() -> None:
    match = {
        "eth_type": 0x86DD,
        "ip_proto": 6,
        "in_port": 3,
        "ipv6_src": ("2001:db8::", "ffff:ffff::"),
        "ipv6_dst": "2001:db8::1",
    }
    assert rule_of(flow_mod(match, [ext(MOD)])).match == TcpMatch(
        6, ipaddress.ip_network("2001:db8::/32"), ipaddress.ip_network("2001:db8::1"), in_port=3
    )


@pytest.mark.parametrize("name", ["tcp_flags", "tcp_flags_nxm"])
@pytest.mark.parametrize(("given_flags", "expected"), [(0x002, (0x002, 0xFFF)), ((2, 0x13), (2, 0x13))])
def test_tcp_flags_as_ryu_writes_them(name: str, given_flags: Any, expected: tuple[int, int]) -> None:
    match = rule_of(flow_mod({**TCP4, name: given_flags}, [ext(MOD)])).match
    assert (match.flags, match.flags_mask) == expected


@pytest.mark.parametrize("header", ["80005402", "80005504", "00014402", "00014504"])
def test_tcp_flags_by_number(header: str) -> None:
    """OXM basic 42 and NXM_1 34 (tcp_flags_nxm), exact and masked."""
    masked = int(header, 16) & 0x100
    tcp = bytes.fromhex("80000a020800 8000140106")
    oxm = tcp + bytes.fromhex(header) + bytes.fromhex("00020013" if masked else "0002")
    match = struct.pack("!HH", 1, 4 + len(oxm)) + oxm
    match += bytes(-len(match) % 8)
    found = split.tcp_match(of.read_match(match))
    assert (found.flags, found.flags_mask) == (2, 0x13 if masked else 0xFFF)


NO_MATCH = {
    "no ip_proto": ({"eth_type": 0x0800}, of.OFPBMC_BAD_WILDCARDS),
    "nothing": ({}, of.OFPBMC_BAD_WILDCARDS),
    "UDP": ({"eth_type": 0x0800, "ip_proto": 17, "udp_dst": 53}, of.OFPBMC_BAD_VALUE),
    "ARP": ({"eth_type": 0x0806, "ip_proto": 6}, of.OFPBMC_BAD_VALUE),
    "eth_src": ({**TCP4, "eth_src": "00:00:00:00:00:01"}, of.OFPBMC_BAD_FIELD),
    "vlan": ({**TCP4, "vlan_vid": 0x1005}, of.OFPBMC_BAD_FIELD),
    "dscp": ({**TCP4, "ip_dscp": 3}, of.OFPBMC_BAD_FIELD),
    "odd mask": ({**TCP4, "ipv4_src": ("10.0.0.0", "255.0.255.0")}, of.OFPBMC_BAD_NW_ADDR_MASK),
    "other IP": ({**TCP4, "ipv6_src": "::1"}, of.OFPBMC_BAD_PREREQ),
}


@pytest.mark.parametrize("case", NO_MATCH)
def test_a_match_that_an_extension_entry_cannot_have(case: str) -> None:
    match, code = NO_MATCH[case]
    assert refusal_of(flow_mod(match, [ext(MOD)])) == (ofproto.OFPET_BAD_MATCH, code)


def raw_action(subtype: int, rest: str, length: int | None = None) -> bytes:
    body = bytes.fromhex(rest)
    return struct.pack("!HHIH", 0xFFFF, length or 10 + len(body), wire.WEIR_EXPERIMENTER_ID, subtype) + body


NO_ACTION = {
    "unknown subtype": ([raw_action(9, "0000 00000001")], of.OFPBAC_BAD_EXP_TYPE),
    "too long": ([raw_action(1, "0500 00007530 0000000000000000")], of.OFPBAC_BAD_LEN),
    "no window": ([raw_action(1, "0500 00000000")], of.OFPBAC_BAD_ARGUMENT),
    "alpha 0": ([raw_action(1, "0000 00007530")], of.OFPBAC_BAD_ARGUMENT),
    "window over 1 GiB": ([raw_action(4, "0000 7fffffff")], of.OFPBAC_BAD_ARGUMENT),
    "two windows": ([raw_action(1, "0500 00007530"), raw_action(4, "0000 ffffffff")], of.OFPBAC_TOO_MANY),
    "two counts": ([raw_action(2, "0000 ffffffff"), raw_action(3, "0000 ffffffff")], of.OFPBAC_TOO_MANY),
}


@pytest.mark.parametrize("case", NO_ACTION)
def test_an_action_that_cannot_be(case: str) -> None:
    raws, code = NO_ACTION[case]
    message = flow_mod(actions=[ext_raw(raw) for raw in raws])
    assert refusal_of(message) == (ofproto.OFPET_BAD_ACTION, code)


def test_counting_by_in_port_and_an_entry_for_all_tables_are_refused() -> None:
    counting = flow_mod({**TCP4, "in_port": 1}, [ext(wire.IncrementNi())])
    assert refusal_of(counting) == (ofproto.OFPET_BAD_ACTION, of.OFPBAC_MATCH_INCONSISTENT)
    everywhere = flow_mod(actions=[ext(MOD)], table_id=ofproto.OFPTT_ALL)
    assert refusal_of(everywhere) == (ofproto.OFPET_FLOW_MOD_FAILED, of.OFPFMFC_BAD_TABLE_ID)


def test_a_field_twice_is_refused() -> None:
    oxm = bytes.fromhex("80000a020800" * 2)
    with pytest.raises(Refused) as caught:
        of.read_match(struct.pack("!HH", 1, 4 + len(oxm)) + oxm)
    assert caught.value.code == of.OFPBMC_DUP_FIELD


# -- matches of each other ---------------------------------------------------------------------------

NETWORKS = st.one_of(
    st.none(),
    st.builds(
        lambda address, bits: ipaddress.ip_network((int(address), bits), strict=False),
        st.ip_addresses(v=4, network="10.0.0.0/8"),
        st.integers(1, 32),
    ),
)
MAYBE_PORT = st.one_of(st.none(), st.integers(1, 3))
TCP_MATCHES = st.builds(
    lambda flags, **rest: TcpMatch(flags=flags[0] & flags[1], flags_mask=flags[1], **rest),
    src=NETWORKS,
    dst=NETWORKS,
    src_port=MAYBE_PORT,
    dst_port=MAYBE_PORT,
    flags=st.tuples(st.integers(0, 0xFFF), st.integers(0, 0xFFF)),
    in_port=MAYBE_PORT,
)


@given(TCP_MATCHES)
def test_fields_of_is_the_inverse_of_tcp_match(match: TcpMatch) -> None:
    assert split.tcp_match(split.fields_of(match)) == match


def hits(fields: of.Fields, packet: dict[Any, int]) -> bool:
    return all(packet.get(name, 0) & mask == value for name, (value, mask) in fields.items())


@given(TCP_MATCHES, TCP_MATCHES, TCP_MATCHES)
def test_what_covers_a_match_is_hit_by_its_packets(one: TcpMatch, two: TcpMatch, sent: TcpMatch) -> None:
    general, special = split.fields_of(one), split.fields_of(two)
    packet = {name: value for name, (value, _) in (split.fields_of(sent) | special).items()}
    assert split.covers({}, special)
    assert split.covers(special, special)
    if split.covers(general, special):
        assert hits(general, packet)
    if split.covers(general, special) and split.covers(special, general):
        assert general == special


def test_covers_knows_prefixes_and_foreign_fields() -> None:
    special = split.fields_of(TcpMatch(4, ipaddress.ip_network("10.1.2.0/24"), dst_port=80))

    def fields(**match: Any) -> of.Fields:
        return of.read_match(of.FlowMod.parse(flow_mod(match)).match)

    assert split.covers(fields(eth_type=0x0800), special)
    assert split.covers(fields(eth_type=0x0800, ipv4_src=("10.1.0.0", "255.255.0.0")), special)
    assert not split.covers(fields(eth_type=0x0800, ipv4_src="10.1.2.3"), special)
    assert not split.covers(fields(eth_type=0x86DD), special)
    assert not split.covers(fields(vlan_vid=0x1001), special)
