"""The definition of the port counters agrees with the C structs."""

from __future__ import annotations

import pytest

from openflow_ext.switch.dataplane.structs import ffi
from weir_base.port_counters import PORT_COUNTERS, PortCounter, PortCountersRecord
from weir_base.port_counters import PortCountersFlags as Flags

FROM_C = [counter for counter in PORT_COUNTERS.values() if counter.source != "agent"]


@pytest.mark.parametrize("counter", FROM_C, ids=lambda counter: counter.name)
def test_the_c_struct_has_a_member_of_the_counters_name_and_size(counter: PortCounter) -> None:
    members = dict(ffi.typeof(f"struct {counter.source}").fields)
    assert counter.name in members
    if counter.wire_code == "Q":
        assert ffi.sizeof(members[counter.name].type) == 8


@pytest.mark.parametrize(
    ("flags", "allowance_bytes", "limit"),
    [
        (Flags.ATTACHED, 0, None),
        (Flags.CORRECTS_ALLOWANCE, 0, None),
        (Flags.ATTACHED, 7_500, "fixed"),
        (Flags.CORRECTS_ALLOWANCE, 7_500, "loop"),
        (Flags.CORRECTS_ALLOWANCE | Flags.ALLOWANCE_FROM_HANDSHAKE, 7_500, "handshake"),
        (Flags.CORRECTS_ALLOWANCE | Flags.ALLOWANCE_AT_LEAST, 3_000, "segments"),
        (Flags.CORRECTS_ALLOWANCE | Flags.ALLOWANCE_AT_QUEUE, 131_250, "queue"),
        (Flags.CORRECTS_ALLOWANCE | Flags.ALLOWANCE_AT_MOST, 1 << 28, "most"),
        (Flags.CORRECTS_ALLOWANCE | Flags.ALLOWANCE_AT_ROUND_TRIP, 1 << 18, "round trip"),
    ],
)
def test_the_flags_state_what_determines_the_allowance(
    flags: Flags, allowance_bytes: int, limit: str | None
) -> None:
    record = PortCountersRecord(port_no=1, flags=flags, allowance_bytes=allowance_bytes)
    assert record.allowance_limit == limit
