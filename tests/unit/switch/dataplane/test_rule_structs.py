"""The table of rules by TCP flags, compared with the list from which it is made."""

from __future__ import annotations

from ipaddress import IPv4Network

from hypothesis import given
from hypothesis import strategies as st

from openflow_ext.switch.dataplane.rule_structs import flags_table
from openflow_ext.switch.dataplane.rules import Rule, TcpMatch, WindowOp
from openflow_ext.switch.dataplane.structs import constants

NO_RULE, FIRST_RULE = int(constants.WEIR_NO_RULE), int(constants.WEIR_FIRST_RULE)
ASK_LIST = int(constants.WEIR_ASK_LIST)
PLAIN_FLAGS = int(constants.WEIR_PLAIN_FLAGS)
NEAR, FAR = IPv4Network("10.0.0.1/32"), IPv4Network("10.0.0.2/32")
FIN, SYN, RST, ACK, CWR = 0x01, 0x02, 0x04, 0x10, 0x80

matches = st.builds(
    TcpMatch,
    ip_version=st.sampled_from([4, 4, 6]),
    src_port=st.sampled_from([None, None, 1]),
    in_port=st.sampled_from([None, None, 1]),
    flags=st.sampled_from([0, SYN, ACK, SYN | ACK]),
    flags_mask=st.sampled_from([0, SYN, ACK, SYN | ACK, ACK | CWR]),
)
rules = st.builds(
    Rule,
    table_id=st.integers(0, 2),
    priority=st.just(1),
    cookie=st.just(0),
    match=matches,
    window_op=st.just(WindowOp.SET_WINDOW),
    idle_timeout_s=st.sampled_from([0, 0, 0, 5]),
)


def acting(listed: list[tuple[Rule, int]], version: int, flags: int, port: int) -> set[int]:
    """The tallies of the rules that act on such a segment of port ``port``: the first of each table."""
    first: dict[int, int] = {}
    for rule, place in listed:
        match = rule.match
        fits = flags & match.flags_mask == match.flags and match.ip_version == version
        if fits and match.src_port in (None, port) and match.in_port in (None, port):
            first.setdefault(rule.table_id, place)
    return set(first.values())


@given(st.lists(rules, max_size=6), st.sampled_from([4, 6]), st.integers(0, 0xFF), st.sampled_from([1, 2]))
def test_the_flags_table_agrees_with_the_list_or_defers_to_it(
    entries: list[Rule], version: int, flags: int, port: int
) -> None:
    listed = [(rule, 10 + i) for i, rule in enumerate(entries)]

    cell = flags_table(listed)[(version == 6) * PLAIN_FLAGS + flags % PLAIN_FLAGS]

    if cell != ASK_LIST:
        expected = set() if cell == NO_RULE else {cell - FIRST_RULE}
        assert acting(listed, version, flags, port) == expected
        assert not any(rule.idle_timeout_s for rule, place in listed if place in expected)


def test_rules_that_match_only_flags_need_no_list() -> None:
    """SCCP's Table I at the ingress: ACKs with any other flags except SYN."""
    acks = [
        (Rule(1, 100, 0, TcpMatch(ip_version=v, flags=ACK, flags_mask=SYN | ACK), WindowOp.FAIR_SHARE), v)
        for v in (4, 6)
    ]

    table = flags_table(acks)

    assert ASK_LIST not in table
    assert [table[ACK], table[PLAIN_FLAGS + ACK | FIN]] == [FIRST_RULE + 4, FIRST_RULE + 6]
    assert [table[SYN | ACK], table[RST]] == [NO_RULE, NO_RULE]


def test_a_rule_with_an_address_needs_the_list_for_its_flags() -> None:
    one_host = Rule(0, 1, 0, TcpMatch(src=NEAR, dst=FAR, flags=ACK, flags_mask=ACK), WindowOp.SET_WINDOW)

    table = flags_table([(one_host, 1)])

    assert (table[ACK], table[SYN], table[PLAIN_FLAGS + ACK]) == (ASK_LIST, NO_RULE, NO_RULE)
