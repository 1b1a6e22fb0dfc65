"""What the last sweep of the flow table found, and whether another one may find anything to do. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from openflow_ext.switch.dataplane.interface import SweepTimes

LONGEST_NS = 10_000_000_000
"""The longest time between two sweeps while there are flows. A lone SYN, FIN or RST of a flow that is not
counted changes nothing at its port that ``is_due`` could see."""


@dataclass(frozen=True, slots=True)
class LastSweep:
    """The last sweep: its times, the state of each port before it, when it began, and its result.

    ``due_ns``: no flow that sends and receives nothing needs a sweep before this time. ``visited``: flows
    that are left.
    """

    times: SweepTimes | None = None
    states: Mapping[int, bytes] = field(default_factory=dict)
    began_ns: int = 0
    due_ns: int = 0
    visited: int = 0

    def is_due(self, times: SweepTimes, states: Mapping[int, bytes], now_ns: int) -> bool:
        """Whether a sweep with ``times`` may find anything to do. ``states``: the state of each port now.

        A segment changes the state of its port: the tick of its clock, the active senders, N_i.
        """
        waited = now_ns >= min(self.due_ns, self.began_ns + LONGEST_NS)
        return waited or times != self.times or states != self.states
