"""A record of one layout becomes a record of another one, field by field."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openflow_ext.switch.dataplane.structs import constants as c
from openflow_ext.switch.dataplane.structs import ffi
from openflow_ext.switch.dataplane.upgrade.layouts import MEANING, fields_of
from openflow_ext.switch.dataplane.upgrade.meanings import (
    flow_1_to_2,
    flow_2_to_3,
    flow_4_to_5,
    state_3_to_4,
    steps,
)
from openflow_ext.switch.dataplane.upgrade.move import Edit, Edits
from openflow_ext.switch.dataplane.upgrade.records import Conversion

TYPES = ("struct weir_flow", "struct weir_port_state", "struct weir_rule", "struct weir_counts")

OLD_FLOW = {
    **{f"{side}.{name}": at for at, side in enumerate(("local", "remote")) for name in ("mss", "scale")},
    "flags": c.WEIR_SYN_IN | c.WEIR_SYN_OUT | c.WEIR_WAS_COUNTED | c.WEIR_ESTABLISHED,
    "counted": 1,
    "two_segments": 0,
    "last_ack_seq": 5000,
    "reported_ns": 7 << 20,
    "swept_ns": 99,
    "scale_shift": 3,
    "local_isn": 100,
    "remote_isn": 200,
}


def test_fields_are_copied_by_name_and_new_ones_are_0() -> None:
    convert = Conversion({"a": (0, 4), "b": (4, 2)}, {"b": (0, 2), "c": (2, 2), "a": (4, 4)}, 8)
    assert convert.lost == []
    assert convert(b"AAAABB") == b"BB\0\0AAAA"


def test_a_wider_field_keeps_its_value() -> None:
    assert Conversion({"a": (0, 4)}, {"a": (0, 8)}, 8)((7).to_bytes(4, "little")) == (7).to_bytes(8, "little")


@pytest.mark.parametrize("new", [{}, {"a": (0, 2)}, {"b": (0, 4)}])
def test_a_field_that_the_new_record_cannot_hold_is_lost(new: dict[str, tuple[int, int]]) -> None:
    assert Conversion({"a": (0, 4), "pad2": (4, 4)}, new, 8).lost == ["a"]


def test_every_step_leaves_nothing_that_this_version_cannot_hold() -> None:
    new = fields_of("struct weir_flow")
    assert {path for path in flow_2_to_3(flow_1_to_2(OLD_FLOW)) if path not in new} == set()


def test_a_flow_of_the_first_meaning_keeps_its_count_its_scales_and_its_numbers() -> None:
    flow = flow_1_to_2(OLD_FLOW)
    assert flow["member"] == c.WEIR_IN_N_I
    assert flow["scale_shift"] == 3
    assert flow["reported_ms"] == 7
    assert (flow["local_edges.end"], flow["local_edges.ack"]) == (101, 5000)
    assert (flow["remote_edges.end"], flow["remote_edges.ack"]) == (5000, 101)
    learns = c.WEIR_LEARNS_IN | c.WEIR_LEARNS_OUT
    assert flow["flags"] & (c.WEIR_KEPT | learns | c.WEIR_TO_COUNT) == c.WEIR_KEPT | learns | c.WEIR_TO_COUNT


def test_a_flow_whose_handshake_is_not_complete_is_not_kept() -> None:
    flow = flow_1_to_2(OLD_FLOW | {"flags": c.WEIR_SYN_OUT, "counted": 0, "last_ack_seq": 0})
    assert flow["flags"] == c.WEIR_SYN_OUT
    assert flow["member"] == 0
    assert flow["remote_edges.end"] == 201


def test_weights_of_the_third_meaning_have_a_finer_unit() -> None:
    """Two flows sent in the even turn, of which one is punished, and one in the odd turn."""
    old = {"sent_in_turn": turns(2, 1), "weight_in_turn": turns(16 + 1, 16), "n_i": 3}
    full, small = c.WEIR_FULL_WEIGHT, c.WEIR_FULL_WEIGHT // c.WEIR_PUNISHED_FRACTION
    assert state_3_to_4(old) == {
        "sent_in_turn": turns(2, 1),
        "weight_in_turn": turns(full + small, full),
        "full_in_turn": turns(2 * full, full),
        "n_i": 3,
    }


def test_a_flow_of_the_fourth_meaning_is_watched_anew() -> None:
    old = {"flags": c.WEIR_WATCHED | c.WEIR_ESTABLISHED, "watched_timestamp": 5, "watched_seq": 6}
    assert flow_4_to_5(old) == {"flags": c.WEIR_ESTABLISHED, "watched_seq": 6}


def turns(even: int, odd: int) -> bytes:
    return struct.pack("=2Q", even, odd)


def test_steps_are_chosen_by_both_meanings() -> None:
    assert steps("struct weir_flow", 1, MEANING)[0] is flow_1_to_2
    assert steps("struct weir_flow", MEANING, MEANING) == ()
    assert steps("struct weir_port_state", 1, 2) == ()


def apply(record: bytes, edits: list[Edit]) -> bytes:
    """As weir_move does (weir_move.h)."""
    made = bytearray(record)
    for at, kind, before, after in edits:
        size = 8 if kind in (c.WEIR_SET_8, c.WEIR_SUM_8) else 4
        held = int.from_bytes(made[at : at + size], "little")
        if kind in (c.WEIR_SUM_4, c.WEIR_SUM_8):
            held += after - before
        elif kind == c.WEIR_BITS_4:
            held = (held | after & ~before) & ~(before & ~after)
        elif held == before:
            held = after
        made[at : at + size] = (held % (1 << 8 * size)).to_bytes(size, "little")
    return bytes(made)


@pytest.mark.parametrize("c_type", TYPES)
@given(data=st.data())
def test_edits_turn_one_record_into_the_other(c_type: str, data: st.DataObject) -> None:
    size = ffi.sizeof(c_type)
    before, after = (data.draw(st.binary(min_size=size, max_size=size)) for _ in range(2))
    edits = Edits(c_type, simple_count=True)
    made = apply(before, edits.between(before, after))
    assert edits.between(made, after) == []
    assert edits.between(apply(made, edits.between(after, before)), before) == []


@pytest.mark.parametrize(("simple_count", "n_i"), [(False, 5), (True, 8)])
def test_weir_move_alone_keeps_the_counts_that_follow_flows(simple_count: bool, n_i: int) -> None:
    edits = Edits("struct weir_port_state", simple_count)
    states = [
        ffi.new(
            "struct weir_port_state *", {"n_i": n, "two_segment_flows": n, "segments_bytes": n, "alarms": n}
        )
        for n in (1, 4, 5)
    ]
    before, after, current = (bytes(ffi.buffer(one)) for one in states)
    merged = ffi.from_buffer("struct weir_port_state *", apply(current, edits.between(before, after)))
    assert (merged.n_i, merged.two_segment_flows, merged.segments_bytes, merged.alarms) == (n_i, 5, 5, 8)


def test_what_both_versions_count_is_added() -> None:
    edits = Edits("struct weir_flow")
    flow = [ffi.new("struct weir_flow *", {"out_bytes": n, "last_ns": n}) for n in (100, 150, 120)]
    before, after, current = (bytes(ffi.buffer(one)) for one in flow)
    merged = ffi.from_buffer("struct weir_flow *", apply(current, edits.between(before, after)))
    assert merged.out_bytes == 170
    assert merged.last_ns == 120, "the new programs have seen a later segment"
