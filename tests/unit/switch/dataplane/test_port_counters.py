"""The definition of the port counters agrees with the C structs."""

from __future__ import annotations

import pytest

from openflow_ext.switch.dataplane.structs import ffi
from weir_base.port_counters import PORT_COUNTERS, PortCounter

FROM_C = [counter for counter in PORT_COUNTERS.values() if counter.source != "agent"]


@pytest.mark.parametrize("counter", FROM_C, ids=lambda counter: counter.name)
def test_the_c_struct_has_a_member_of_the_counters_name_and_size(counter: PortCounter) -> None:
    members = dict(ffi.typeof(f"struct {counter.source}").fields)
    assert counter.name in members
    if counter.wire_code == "Q":
        assert ffi.sizeof(members[counter.name].type) == 8
