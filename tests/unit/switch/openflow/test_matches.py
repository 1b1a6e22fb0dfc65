"""OpenFlow matches: fields by name and by number, and which match covers which."""

from __future__ import annotations

import ipaddress
import struct
from typing import Any

import pytest
from hypothesis import given

from openflow_ext.switch.dataplane.rules import TcpMatch
from openflow_ext.switch.errors import Refused
from openflow_ext.switch.openflow import messages as of
from openflow_ext.switch.openflow.extension_rules import fields_of, tcp_match
from openflow_ext.switch.openflow.flow_mods import FlowMod
from openflow_ext.switch.openflow.matches import Fields, covers, read_match
from tests.support.openflow.flow_mods import flow_mod
from tests.support.openflow.tcp_matches import TCP_MATCHES


@pytest.mark.parametrize("header", ["80005402", "80005504", "00014402", "00014504"])
def test_tcp_flags_are_read_by_number(header: str) -> None:
    """OXM basic 42 and NXM_1 34 (tcp_flags_nxm), exact and masked."""
    masked = int(header, 16) & 0x100
    tcp = bytes.fromhex("80000a020800 8000140106")
    oxm = tcp + bytes.fromhex(header) + bytes.fromhex("00020013" if masked else "0002")
    match = struct.pack("!HH", 1, 4 + len(oxm)) + oxm
    match += bytes(-len(match) % 8)
    found = tcp_match(read_match(match))
    assert (found.flags, found.flags_mask) == (2, 0x13 if masked else 0xFFF)


def test_a_field_that_occurs_twice_is_refused() -> None:
    oxm = bytes.fromhex("80000a020800" * 2)
    with pytest.raises(Refused) as caught:
        read_match(struct.pack("!HH", 1, 4 + len(oxm)) + oxm)
    assert caught.value.code == of.OFPBMC_DUP_FIELD


def matches(fields: Fields, packet: dict[Any, int]) -> bool:
    return all(packet.get(name, 0) & mask == value for name, (value, mask) in fields.items())


@given(TCP_MATCHES, TCP_MATCHES, TCP_MATCHES)
def test_a_covering_match_matches_the_packets_of_the_covered_one(
    one: TcpMatch, two: TcpMatch, sent: TcpMatch
) -> None:
    general, special = fields_of(one), fields_of(two)
    packet = {name: value for name, (value, _) in (fields_of(sent) | special).items()}
    assert covers({}, special)
    assert covers(special, special)
    if covers(general, special):
        assert matches(general, packet)
    if covers(general, special) and covers(special, general):
        assert general == special


def test_covering_compares_prefixes_and_fields_of_other_protocols() -> None:
    special = fields_of(TcpMatch(4, ipaddress.ip_network("10.1.2.0/24"), dst_port=80))

    def fields(**match: Any) -> Fields:
        return read_match(FlowMod.parse(flow_mod(match)).match)

    assert covers(fields(eth_type=0x0800), special)
    assert covers(fields(eth_type=0x0800, ipv4_src=("10.1.0.0", "255.255.0.0")), special)
    assert not covers(fields(eth_type=0x0800, ipv4_src="10.1.2.3"), special)
    assert not covers(fields(eth_type=0x86DD), special)
    assert not covers(fields(vlan_vid=0x1001), special)
