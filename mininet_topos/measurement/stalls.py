"""CPU stalls: the times at which a CPU ran no program of this machine, as the stall watch records them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mininet_topos.machine.commands import built
from mininet_topos.machine.cpus import lab_cpus
from mininet_topos.machine.lab_state import LabState
from mininet_topos.machine.programs import Program
from mininet_topos.network.ovs_buffers import vswitchd_pid
from mininet_topos.records.raw_records import Record, read_records

LEAST_STALL_US = 1000


@contextmanager
def watching_stalls(records: Path, state: LabState) -> Iterator[list[int]]:
    """Run the stall watch (native/stalls) while the context lasts; it writes to ``records``.

    Yields the numbers of the CPUs that it watches.
    """
    watched = lab_cpus(vswitchd_pid())
    argv = (str(built("weir-stalls")), str(LEAST_STALL_US), *map(str, watched))
    program = Program("stall watch", argv, records.with_suffix(".log"), state, records=records)
    try:
        yield watched
        program.check()
    finally:
        program.stop()


def read_stalls(records: Path) -> list[Record]:
    """Return the stalls that ``watching_stalls`` has recorded, ordered by time."""
    return sorted(read_records(records), key=lambda stall: stall["start_ns"])
