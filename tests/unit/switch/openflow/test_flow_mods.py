"""FLOW_MODs divided into the extension's part and Open vSwitch's, which Ryu reads back."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from openflow_ext import wire
from openflow_ext.switch.openflow.flow_mods import FlowMod, may_extend
from tests.support.openflow.flow_mods import (
    APPLY,
    WRITE,
    ext,
    flow_mod,
    instruction,
    output,
    parsed,
    parser,
)

MOD = wire.ModWindow(30000)

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
    """Instructions, the same without the extension's actions, and the number of the extension's actions."""
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
def test_open_vswitch_gets_the_entry_without_the_extensions_actions(
    entry: tuple[list[Any], list[Any], int], match: dict[str, Any], xid: int, priority: int, command: int
) -> None:
    whole, rest, taken = entry
    fields: dict[str, Any] = {"priority": priority, "command": command, "cookie": 7, "table_id": 3}
    fields |= {"match": match, "xid": xid, "idle_timeout": 5, "flags": 1}
    found = FlowMod.parse(flow_mod(instructions=whole, **fields))
    expected = flow_mod(instructions=rest, **fields)
    assert found.plain == expected
    assert parsed(found.plain).to_jsondict() == parsed(expected).to_jsondict()
    assert len(found.actions) == taken


def test_an_entry_without_extension_actions_stays_as_it_is() -> None:
    message = flow_mod(actions=[output(1), parser.NXActionResubmitTable(table_id=2)])
    found = FlowMod.parse(message)
    assert (found.plain, found.actions) == (message, ())
    assert not may_extend(message)


def test_the_experimenter_id_inside_a_match_is_not_an_action() -> None:
    message = flow_mod({"eth_type": 0x0800, "ipv4_src": "0.87.101.105"}, [output(1)])
    assert may_extend(message)
    found = FlowMod.parse(message)
    assert (found.plain, found.actions) == (message, ())


@given(st.binary(max_size=40), st.integers(0, 120))
def test_wrong_lengths_raise_only_value_error(garbage: bytes, cut: int) -> None:
    message = flow_mod(actions=[ext(MOD), output(1)])
    for hostile in (message[:cut], message[:56] + garbage, message[:48] + garbage):
        try:
            FlowMod.parse(hostile)
        except ValueError:
            continue
