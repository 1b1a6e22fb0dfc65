"""Which common RTT each port gets, by the handshakes of its flows (section III.B). Pure.

Fixed: the setting holds. Measured: a percentile of the port's last handshakes with head-room. A handshake
that waited in a queue measured the queue too, so ``most_us`` bounds what a port may be given.
Where even the quickest of them took longer than the common RTT, the flows cannot fill the port, which is
said; where all that are kept took more than twice as long they would be held below half of it, and the port
falls back to counting without clamping.
Of handshakes that begin together only one counts: those of a burst wait for each other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import ceil

from flowdb.flow import PortKey
from openflow_ext.wire import PortCountersFlags
from sccp_app.core import overshoot_bytes

KEPT_HANDSHAKES = 256
LEAST_HANDSHAKES = 16
"""Fewer tell nothing about a port."""
SPACING_NS = 10_000_000
"""Handshakes that begin within so long of the last that counted do not."""
STRANGLING = 2
"""The least of all handshakes that are kept over the common RTT, beyond which a port does not clamp."""
_STEP = 0.1
"""By which part a measured common RTT has to differ from the one in force, to be sent."""

_REASONS = {
    PortCountersFlags.NO_CAPACITY: "its capacity is not known: shape the port, or set [sccp] capacity_bps",
    PortCountersFlags.NO_QUEUE: "it has no queue: give it a qdisc",
    PortCountersFlags.TABLE_FULL: "the switch's flow table is full: raise its [switch] max_flows",
}


@dataclass(frozen=True, slots=True)
class RttPolicy:
    """How the common RTT is found. ``fixed_us`` holds, if ``measured`` until enough were."""

    fixed_us: int
    measured: bool = False
    percentile: float = 90.0
    headroom: float = 1.5
    most_us: int = 2000


@dataclass(frozen=True, slots=True)
class Share:
    """What a port's fair share is made of now. ``common_rtt_us`` 0: flows are counted, none is clamped.

    ``least_us`` and ``median_us``: of its last handshakes.
    """

    port: PortKey
    common_rtt_us: int
    least_us: int
    median_us: int

    @property
    def fills(self) -> bool:
        """Whether flows that keep to it can fill the port."""
        return self.common_rtt_us >= self.least_us

    def buffer_bytes(self, capacity_bps: int) -> int:
        """What of the port's queue the overshoot takes."""
        return overshoot_bytes(capacity_bps, self.common_rtt_us, self.median_us)


@dataclass(slots=True)
class _Handshakes:
    rtts_us: deque[int] = field(default_factory=lambda: deque(maxlen=KEPT_HANDSHAKES))
    last_ns: int = -SPACING_NS


class Shares:
    """The handshakes of every port, and the common RTT that follows from them."""

    def __init__(self, policy: RttPolicy) -> None:
        self._policy = policy
        self._handshakes: dict[PortKey, _Handshakes] = {}
        self._in_force: dict[PortKey, Share] = {}

    def __iter__(self) -> Iterator[Share]:
        return iter(self._in_force.values())

    def of_switch(self, dpid: int) -> list[Share]:
        """What a switch that comes back has to be told besides the common settings."""
        return [share for share in self if share.port.dpid == dpid]

    def port_gone(self, port: PortKey) -> None:
        self._handshakes.pop(port, None)
        self._in_force.pop(port, None)

    def on_handshake(self, port: PortKey, rtt_us: int, at_ns: int) -> Share | None:
        """A flow of this port was opened at ``at_ns``; the port's new share, where that changes it."""
        kept = self._handshakes.setdefault(port, _Handshakes())
        if abs(at_ns - kept.last_ns) < SPACING_NS:
            return None
        kept.last_ns = at_ns
        kept.rtts_us.append(rtt_us)
        if len(kept.rtts_us) < LEAST_HANDSHAKES:
            return None
        ordered = sorted(kept.rtts_us)
        before = self._in_force.get(port) or Share(port, self._policy.fixed_us, 0, 0)
        share = Share(port, self._common_us(ordered), ordered[0], ordered[len(ordered) // 2])
        if not _differ(before, share):
            return None
        self._in_force[port] = share
        return share

    def _common_us(self, ordered: list[int]) -> int:
        policy, common_us = self._policy, self._policy.fixed_us
        if policy.measured:
            at = ceil(policy.percentile / 100 * len(ordered)) - 1
            common_us = min(ceil(ordered[at] * policy.headroom), policy.most_us)
        strangles = len(ordered) == KEPT_HANDSHAKES and ordered[0] > STRANGLING * common_us
        return 0 if strangles else common_us


def _differ(before: Share, now: Share) -> bool:
    step_us = abs(now.common_rtt_us - before.common_rtt_us)
    return step_us > _STEP * before.common_rtt_us or before.fills != now.fills


def why_counted_only(flags: PortCountersFlags) -> str:
    """Why a port's flows are counted and none is clamped, by its counters; "" where they are clamped."""
    return "; ".join(text for flag, text in _REASONS.items() if flags & flag)
