"""Inputs and decisions of the control loop, as plain values."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TypeAlias

from app_base.scope import Scope
from flowdb.flow import Flow, PortKey


@dataclass(frozen=True, slots=True)
class Parameters:
    """The loop's settings. ``rtt_us`` times the steps; equation (1) uses it if no RTT was measured.

    ``corrects_allowance``: ports give punished flows at least their part of what the link needs. Then a share
    of equation (5) is sent as MOD_WINDOW, which the data plane lowers no further than to that part.
    ``scope``: where clamps change packets; elsewhere they are observed.
    """

    rtt_us: int = 1000
    k_pkts: int = 20
    alpha: int = 5
    clamp_limit_ns: int = 2_000_000_000
    hard_limit_ns: int = 30_000_000_000
    corrects_allowance: bool = False
    scope: Scope = Scope()

    @property
    def step_ns(self) -> int:
        """3/2 RTT."""
        return self.rtt_us * 1500


@dataclass(frozen=True, slots=True)
class Alarm:
    """BUF_ALARM: the port's queue and rate.

    ``n_i``: the flows that the switch counts; 0: it does not count. ``queue_pkts`` 0: not reported.
    ``non_tcp_percent``: the part of the queue that would be there without TCP. ``allowance_bytes``: what may
    be in flight through the port; 0: the port does not correct it.
    """

    port: PortKey
    queue_bytes: int
    port_rate_bps: int
    n_i: int = 0
    queue_pkts: int = 0
    non_tcp_percent: int = 0
    allowance_bytes: int = 0


class Equation(enum.IntEnum):
    """The equation of the paper that gave a window; 0: a person gave it."""

    BY_HAND = 0
    PUNISHED = 3
    SHARED = 5


Wanter: TypeAlias = PortKey | None
"""A congested port that wants a clamp; None: a person wants it."""


@dataclass(frozen=True, slots=True)
class Punish:
    """Clamp a flow at ``switch`` to ``window_bytes``, which each ACK lowers by ``alpha`` MSS (0: constant).

    The other fields explain the decision: the ``port`` that wants the clamp, and every input of the equation.
    ``candidates`` is the number of flows to choose from; ``ranking`` holds the first of them in the policy's
    order. ``in_force`` False: nothing is sent, because another port wants a smaller window for the flow.
    ``observed``: it is outside the scope, so that its entry changes no packet. ``allowance_bytes``: of the
    port, in the place of capacity x RTT; 0: those gave ``wc_bytes``.
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
    observed: bool = False
    allowance_bytes: int = 0

    @property
    def wanted_by(self) -> Wanter:
        return None if self.equation is Equation.BY_HAND else self.port

    @property
    def settles_at(self) -> tuple[bool, int, int]:
        """Compares windows by their final value: a falling window reaches one MSS within a few ACKs.

        A window that is only observed comes after those in the scope.
        """
        return (self.observed, self.flow.mss_bytes if self.alpha else self.window_bytes, self.window_bytes)


@dataclass(frozen=True, slots=True)
class Resume:
    """Put the earlier ``punish`` into force: the port with a smaller window no longer wants a clamp."""

    punish: Punish


class LiftReason(enum.StrEnum):
    """Why a clamp ended, as the flow database and `weir why` state it."""

    NORMAL = "normal and burst over"
    LIMIT = "limit"
    CLOSED = "flow closed"
    ENTRY_GONE = "entry timed out"
    EXPIRED = "hard limit"
    SWITCH_GONE = "switch gone"
    RELEASED = "released by hand"
    SCOPE = "settings changed"
    OFF = "switch turned off"
    REFUSED = "refused by the switch"


@dataclass(frozen=True, slots=True)
class Lift:
    """End a flow's clamp at ``switch``. ``port`` is the last port that wanted it."""

    flow: Flow
    port: PortKey
    switch: int
    reason: LiftReason


Decision: TypeAlias = Punish | Resume | Lift
