"""This version holds all that earlier versions held.

``tests/support/data_plane/layouts.json`` has the fields of structs by meaning: 1 is version 541b249.
"""

from __future__ import annotations

import json
import sys

import pytest

from libbpf_cffi.btf import Fields
from openflow_ext.switch.dataplane.structs import constants as c
from openflow_ext.switch.dataplane.structs import ffi
from openflow_ext.switch.dataplane.upgrade.layouts import MEANING, fields_of
from openflow_ext.switch.dataplane.upgrade.meanings import steps
from openflow_ext.switch.dataplane.upgrade.records import Conversion
from weir_base.paths import PROJECT

GOLDEN = PROJECT / "tests/support/data_plane/layouts.json"
LAYOUTS: dict[int, dict[str, Fields]] = {
    int(meaning): {
        name: {path: (at, size) for path, (at, size) in one.items()} for name, one in types.items()
    }
    for meaning, types in json.loads(GOLDEN.read_text()).items()
}


def conversion(meaning: int, c_type: str) -> Conversion:
    old = LAYOUTS[meaning][c_type]
    return Conversion(old, fields_of(c_type), ffi.sizeof(c_type), steps(c_type, meaning, MEANING))


@pytest.mark.parametrize(
    ("meaning", "c_type"), [(meaning, name) for meaning, types in LAYOUTS.items() for name in types]
)
def test_no_field_of_an_earlier_version_is_lost(meaning: int, c_type: str) -> None:
    """If you remove or rename a field, add a step to upgrade/meanings.py."""
    assert conversion(meaning, c_type).lost == []


def old_record(meaning: int, c_type: str, **values: int) -> bytes:
    fields = LAYOUTS[meaning][c_type]
    record = bytearray(max(at + size for at, size in fields.values()))
    for path, value in values.items():
        at, size = fields[path]
        record[at : at + size] = value.to_bytes(size, sys.byteorder)
    return bytes(record)


def test_a_flow_of_version_541b249_becomes_one_of_this_version() -> None:
    established = c.WEIR_SYN_IN | c.WEIR_SYN_OUT | c.WEIR_ESTABLISHED | c.WEIR_WAS_COUNTED
    record = old_record(
        1,
        "struct weir_flow",
        counted=1,
        two_segments=1,
        flags=established,
        out_bytes=1 << 40,
        scale_shift=5,
        last_ack_seq=77,
        local_isn=0xFFFFFFFF,
        first_ns=123,
    )
    flow = ffi.from_buffer("struct weir_flow *", conversion(1, "struct weir_flow")(record))
    assert flow.member == c.WEIR_IN_N_I | c.WEIR_IN_TWO_SEGMENTS
    assert (flow.out_bytes, flow.scale_shift, flow.first_ns) == (1 << 40, 5, 123)
    assert (flow.local_edges.end, flow.local_edges.ack, flow.remote_edges.end) == (0, 77, 77)
    assert flow.flags & established == established


def test_the_counters_of_version_541b249_stay() -> None:
    record = old_record(1, "struct weir_port_state", alarms=3, drops=1 << 33, crowd=9)
    state = ffi.from_buffer("struct weir_port_state *", conversion(1, "struct weir_port_state")(record))
    assert (state.alarms, state.drops, state.crowd, state.disbelieved) == (3, 1 << 33, 9, 0)
