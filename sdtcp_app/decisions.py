"""What the loop is told and what it decides, as plain values."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TypeAlias

from flowdb.flow import Flow, PortKey


@dataclass(frozen=True, slots=True)
class Parameters:
    """The loop's settings. ``rtt_us``: the RTT of the timers, and of equation (1) where none was measured."""

    rtt_us: int = 1000
    k_pkts: int = 20
    alpha: int = 5
    clamp_limit_ns: int = 2_000_000_000
    hard_limit_ns: int = 30_000_000_000

    @property
    def step_ns(self) -> int:
        """3/2 RTT."""
        return self.rtt_us * 1500


@dataclass(frozen=True, slots=True)
class Alarm:
    """BUF_ALARM: the port's queue and rate.

    ``n_i``: the flows that the switch counts, 0: it does not. ``queue_pkts`` 0: not told.
    """

    port: PortKey
    queue_bytes: int
    port_rate_bps: int
    n_i: int = 0
    queue_pkts: int = 0


class Equation(enum.IntEnum):
    """Which equation of the paper gave a window; 0: none, a person did."""

    BY_HAND = 0
    PUNISHED = 3
    SHARED = 5


Wanter: TypeAlias = PortKey | None
"""Who wants a flow slowed: a congested port, or (None) a person."""


@dataclass(frozen=True, slots=True)
class Punish:
    """Clamp a flow, at ``switch``: ``window_bytes``, falling by ``alpha`` MSS an ACK (0: steady).

    The rest is where that comes from: the ``port`` that wants it, and every input of the equation;
    ``candidates``: how many flows the one was chosen from, ``ranking`` the first of them in the policy's
    order. ``in_force`` False: nothing is pushed, for another port's window on the flow is smaller.
    """

    flow: Flow
    port: PortKey
    switch: int
    equation: Equation
    window_bytes: int
    alpha: int
    candidates: int
    ranking: tuple[Flow, ...]
    capacity_bps: int
    rtt_us: int
    queue_bytes: int
    n: int
    wc_bytes: int
    wr_bytes: int | None
    in_force: bool = True

    @property
    def wanted_by(self) -> Wanter:
        return None if self.equation is Equation.BY_HAND else self.port

    @property
    def settles_at(self) -> tuple[int, int]:
        """Of two windows the smaller in the end: a falling one reaches one MSS within a few ACKs."""
        return (self.flow.mss_bytes if self.alpha else self.window_bytes, self.window_bytes)


@dataclass(frozen=True, slots=True)
class Resume:
    """Put ``punish``, decided before, into force: the port that wanted less no longer does."""

    punish: Punish


class LiftReason(enum.StrEnum):
    NORMAL = "normal and burst over"
    LIMIT = "limit"
    CLOSED = "flow closed"
    ENTRY_GONE = "entry timed out"
    EXPIRED = "hard limit"
    SWITCH_GONE = "switch gone"
    RELEASED = "released by hand"


@dataclass(frozen=True, slots=True)
class Lift:
    """End a flow's clamp at ``switch``; ``port``: the last that wanted it."""

    flow: Flow
    port: PortKey
    switch: int
    reason: LiftReason


Decision: TypeAlias = Punish | Resume | Lift
