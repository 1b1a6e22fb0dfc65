"""Rules built from FLOW_MODs, and the refusals of FLOW_MODs from which no rule can be built."""

from __future__ import annotations

import ipaddress
import struct
from typing import Any

import pytest
from hypothesis import given

from openflow_ext import wire
from openflow_ext.switch.dataplane.rules import CountOp, Rule, TcpMatch, WindowOp
from openflow_ext.switch.errors import Refused
from openflow_ext.switch.openflow import extension_rules
from openflow_ext.switch.openflow import messages as of
from openflow_ext.switch.openflow.extension_rules import fields_of, operations_of, tcp_match
from openflow_ext.switch.openflow.flow_mods import FlowMod, actions_of
from tests.support.openflow.flow_mods import (
    APPLY,
    TCP4,
    WRITE,
    ext,
    ext_raw,
    flow_mod,
    instruction,
    ofproto,
    output,
)
from tests.support.openflow.tcp_matches import TCP_MATCHES

MOD = wire.ModWindow(30000)


def rule_of(message: bytes) -> Rule:
    return extension_rules.rule_of(FlowMod.parse(message))


def refusal_of(message: bytes) -> tuple[int, int]:
    with pytest.raises(Refused) as caught:
        rule_of(message)
    return caught.value.error_type, caught.value.code


def test_mod_window_on_a_five_tuple_is_an_exact_rule() -> None:
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


def test_write_actions_and_apply_actions_make_one_rule() -> None:
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


@pytest.mark.parametrize("window", [MOD, wire.SetWindow(), wire.SetWindow(1536)])
def test_an_entry_with_observe_reads_back_as_it_was_written(window: wire.Action) -> None:
    rule = rule_of(flow_mod(actions=[ext(wire.Observe()), ext(window)]))
    assert rule.observes
    assert actions_of(operations_of(rule)) == wire.encode_action(wire.Observe()) + wire.encode_action(window)
    assert not rule_of(flow_mod(actions=[ext(window)])).observes


def test_ipv6_networks_and_in_port_are_matched() -> None:
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
def test_tcp_flags_are_read_as_ryu_writes_them(
    name: str, given_flags: Any, expected: tuple[int, int]
) -> None:
    match = rule_of(flow_mod({**TCP4, name: given_flags}, [ext(MOD)])).match
    assert (match.flags, match.flags_mask) == expected


BAD_MATCHES = {
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


@pytest.mark.parametrize("case", BAD_MATCHES)
def test_a_match_that_no_rule_can_have_is_refused(case: str) -> None:
    match, code = BAD_MATCHES[case]
    assert refusal_of(flow_mod(match, [ext(MOD)])) == (ofproto.OFPET_BAD_MATCH, code)


def raw_action(subtype: int, rest: str, length: int | None = None) -> bytes:
    body = bytes.fromhex(rest)
    return struct.pack("!HHIH", 0xFFFF, length or 10 + len(body), wire.WEIR_EXPERIMENTER_ID, subtype) + body


BAD_ACTIONS = {
    "unknown subtype": ([raw_action(9, "0000 00000001")], of.OFPBAC_BAD_EXP_TYPE),
    "too long": ([raw_action(1, "0500 00007530 0000000000000000")], of.OFPBAC_BAD_LEN),
    "no window": ([raw_action(1, "0500 00000000")], of.OFPBAC_BAD_ARGUMENT),
    "alpha 0": ([raw_action(1, "0000 00007530")], of.OFPBAC_BAD_ARGUMENT),
    "window over 1 GiB": ([raw_action(4, "0000 7fffffff")], of.OFPBAC_BAD_ARGUMENT),
    "two windows": ([raw_action(1, "0500 00007530"), raw_action(4, "0000 ffffffff")], of.OFPBAC_TOO_MANY),
    "nothing to observe": (
        [raw_action(5, "000000000000"), raw_action(2, "0000 ffffffff")],
        of.OFPBAC_BAD_ARGUMENT,
    ),
    "two OBSERVE": ([raw_action(5, "000000000000")] * 2, of.OFPBAC_TOO_MANY),
    "two counts": ([raw_action(2, "0000 ffffffff"), raw_action(3, "0000 ffffffff")], of.OFPBAC_TOO_MANY),
}


@pytest.mark.parametrize("case", BAD_ACTIONS)
def test_an_invalid_extension_action_is_refused(case: str) -> None:
    raws, code = BAD_ACTIONS[case]
    message = flow_mod(actions=[ext_raw(raw) for raw in raws])
    assert refusal_of(message) == (ofproto.OFPET_BAD_ACTION, code)


def test_counting_by_in_port_and_an_entry_for_all_tables_are_refused() -> None:
    counting = flow_mod({**TCP4, "in_port": 1}, [ext(wire.IncrementNi())])
    assert refusal_of(counting) == (ofproto.OFPET_BAD_ACTION, of.OFPBAC_MATCH_INCONSISTENT)
    everywhere = flow_mod(actions=[ext(MOD)], table_id=ofproto.OFPTT_ALL)
    assert refusal_of(everywhere) == (ofproto.OFPET_FLOW_MOD_FAILED, of.OFPFMFC_BAD_TABLE_ID)


@given(TCP_MATCHES)
def test_fields_of_is_the_inverse_of_tcp_match(match: TcpMatch) -> None:
    assert tcp_match(fields_of(match)) == match
