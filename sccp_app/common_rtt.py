"""The common RTT of each port, from the handshakes of its flows (section III.B). Pure.

- Fixed: the setting holds.
- Measured: a percentile of the port's recent handshakes, times a headroom. A handshake that waited in a queue
  measured that queue as well, so ``most_us`` bounds the result.

If even the shortest recent handshake took longer than the common RTT, the flows cannot fill the port; the app
reports it. If all recent handshakes took more than twice as long, the flows would fill less than half of the
port. Then the port counts flows but does not clamp, if the policy says so.

Handshakes that begin together wait for each other, so only one of them counts.
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
"""With fewer handshakes the setting holds."""
SPACING_NS = 10_000_000
"""A handshake that begins within this time of the last counted one does not count."""
TOO_SHORT = 2
"""If the shortest of all kept handshakes exceeds the common RTT times this, the port does not clamp."""
MOST_PORTS = 4096
"""The ports of a switch that are measured. An agent's data plane has no more (WEIR_MAX_PORTS)."""
MOST_KEPT_PORTS = 10_000
"""The ports of disconnected switches whose common RTT is kept for their next session."""
_LEAST_CHANGE = 0.1
"""A measured common RTT is sent only if it differs from the last one by this part."""

_REASONS = {
    PortCountersFlags.NO_CAPACITY: "its capacity is unknown: shape the port, or set [sccp] capacity_bps",
    PortCountersFlags.NO_QUEUE: "it has no queue: give it a qdisc",
    PortCountersFlags.TABLE_FULL: "the switch's flow table is full: raise its [switch] max_flows",
}


@dataclass(frozen=True, slots=True)
class RttPolicy:
    """How the common RTT is found. ``fixed_us`` holds if ``measured`` is off or handshakes are too few.

    ``yields``: a port does not clamp if the common RTT is much too short for its flows.
    """

    fixed_us: int
    measured: bool = False
    percentile: float = 90.0
    headroom: float = 1.5
    most_us: int = 2000
    yields: bool = True


@dataclass(frozen=True, slots=True)
class PortRtt:
    """A port's common RTT; 0: the port counts flows but does not clamp.

    ``least_us`` and ``median_us`` describe its recent handshakes.
    """

    port: PortKey
    common_rtt_us: int
    least_us: int
    median_us: int

    @property
    def fills_port(self) -> bool:
        """Whether flows that keep to their fair share can fill the port."""
        return self.common_rtt_us >= self.least_us

    def overshoot_bytes(self, capacity_bps: int) -> int:
        """The part of the port's queue that the overshoot takes (section III.B)."""
        return overshoot_bytes(capacity_bps, self.common_rtt_us, self.median_us)


@dataclass(slots=True)
class _Handshakes:
    """The recent handshakes of a port, and when the last counted one began."""

    rtts_us: deque[int] = field(default_factory=lambda: deque(maxlen=KEPT_HANDSHAKES))
    last_ns: int = -SPACING_NS


class CommonRtts:
    """The handshakes of every port, and the common RTT of each port where it differs from the setting.

    Both are kept by datapath id. A switch can invent port numbers, so at most MOST_PORTS of each are kept.
    """

    def __init__(self, policy: RttPolicy) -> None:
        self._policy = policy
        self._handshakes: dict[int, dict[PortKey, _Handshakes]] = {}
        self._in_force: dict[int, dict[PortKey, PortRtt]] = {}
        self._gone: dict[int, None] = {}

    def __iter__(self) -> Iterator[PortRtt]:
        for rtts in list(self._in_force.values()):
            yield from list(rtts.values())

    def of_switch(self, dpid: int) -> list[PortRtt]:
        """What a switch that reconnects needs besides the settings for all ports."""
        return list(self._in_force.get(dpid, {}).values())

    def of_port(self, port: PortKey) -> PortRtt | None:
        """The common RTT of a port if it differs from the setting."""
        return self._in_force.get(port.dpid, {}).get(port)

    def port_gone(self, port: PortKey) -> None:
        """Forget a port that was removed."""
        self._handshakes.get(port.dpid, {}).pop(port, None)
        self._in_force.get(port.dpid, {}).pop(port, None)

    def switch_up(self, dpid: int) -> None:
        """A switch connected."""
        self._gone.pop(dpid, None)

    def switch_gone(self, dpid: int) -> None:
        """A switch disconnected: forget its handshakes.

        Its common RTTs stay for its next session, unless more than MOST_KEPT_PORTS ports of disconnected
        switches have one. Then the common RTTs of the switches that disconnected first are forgotten.
        """
        self._handshakes.pop(dpid, None)
        if not self._in_force.get(dpid):
            self._in_force.pop(dpid, None)
            return
        self._gone.pop(dpid, None)
        self._gone[dpid] = None
        kept = sum(len(self._in_force[gone]) for gone in self._gone)
        while kept > MOST_KEPT_PORTS:
            oldest = next(iter(self._gone))
            del self._gone[oldest]
            kept -= len(self._in_force.pop(oldest))

    def on_handshake(self, port: PortKey, rtt_us: int, at_ns: int) -> PortRtt | None:
        """A flow through this port opened at ``at_ns``. Returns the port's common RTT if it changed."""
        ports = self._handshakes.setdefault(port.dpid, {})
        rtts = self._in_force.setdefault(port.dpid, {})
        if (port not in ports and len(ports) >= MOST_PORTS) or (port not in rtts and len(rtts) >= MOST_PORTS):
            return None
        kept = ports.setdefault(port, _Handshakes())
        if abs(at_ns - kept.last_ns) < SPACING_NS:
            return None
        kept.last_ns = at_ns
        kept.rtts_us.append(rtt_us)
        if len(kept.rtts_us) < LEAST_HANDSHAKES:
            return None
        ordered = sorted(kept.rtts_us)
        before = self.of_port(port) or PortRtt(port, self._policy.fixed_us, 0, 0)
        rtt = PortRtt(port, self._common_us(ordered), ordered[0], ordered[len(ordered) // 2])
        if not _differ(before, rtt):
            return None
        rtts[port] = rtt
        return rtt

    def _common_us(self, ordered: list[int]) -> int:
        policy, common_us = self._policy, self._policy.fixed_us
        if policy.measured:
            at = ceil(policy.percentile / 100 * len(ordered)) - 1
            common_us = min(ceil(ordered[at] * policy.headroom), policy.most_us)
        too_short = len(ordered) == KEPT_HANDSHAKES and ordered[0] > TOO_SHORT * common_us
        return 0 if too_short and policy.yields else common_us


def _differ(before: PortRtt, now: PortRtt) -> bool:
    change_us = abs(now.common_rtt_us - before.common_rtt_us)
    return change_us > _LEAST_CHANGE * before.common_rtt_us or before.fills_port != now.fills_port


def why_not_clamping(flags: PortCountersFlags) -> str:
    """Why a port counts flows but does not clamp, from the flags of its counters; "" if it clamps."""
    return "; ".join(text for flag, text in _REASONS.items() if flags & flag)
