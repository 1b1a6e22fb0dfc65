"""Mode "reflex": the clamps with which each port is armed, for its switch to activate. Pure.

A port is armed with the clamps of its next alarms, in rank order. When the queue passes K, the switch
activates the first armed entry and reports it. The controller then replaces it by a clamp of its own and
disarms the port: from there on the controller chooses. The port is armed again after the end of its alarm.

A port is armed again only after a change: flows came or went, a window changed by a segment, or alpha or the
hard timeout is another. Arming the same port is limited to once in an interval.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

from flowdb.flow import PortKey
from sdtcp_app.core import Sdtcp
from sdtcp_app.core_types import Alarm, Punish

PORTS_AT_ONCE = 64
_FRAME_BYTES = 1514
_ALL_EVERY_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class AskCapacity:
    """Ask the switch for a port's capacity, for equation (1)."""

    port: PortKey


@dataclass(frozen=True, slots=True)
class Arm:
    """Arm a port with these clamps, by rank, instead of its earlier ones."""

    port: PortKey
    clamps: tuple[Punish, ...]


Request: TypeAlias = AskCapacity | Arm


@dataclass(slots=True)
class _Port:
    """``before``: the clamps that were armed earlier. A report of one of these may still be under way.

    ``hard_limit_ns``: the hard timeout of the armed entries.
    """

    rate_bps: int | None = None
    asked: bool = False
    due_ns: int = 0
    armed: tuple[Punish, ...] = ()
    before: tuple[Punish, ...] = ()
    hard_limit_ns: int = 0


class ArmedPorts:
    """The armed clamps of all ports. ``cookie_of`` gives the cookie of a flow's armed entry from its id."""

    def __init__(self, core: Sdtcp, cookie_of: Callable[[int], int]) -> None:
        self._core = core
        self._cookie_of = cookie_of
        self._ports: dict[PortKey, _Port] = {}
        self._touched: dict[PortKey, None] = {}
        self._all_due_ns = 0

    def touch(self, ports: Iterable[PortKey]) -> None:
        """The candidates of these ports may have changed."""
        self._touched |= dict.fromkeys(ports)

    def set_capacity(self, port: PortKey, rate_bps: int) -> None:
        """A port's capacity, as its switch reports it."""
        self._ports.setdefault(port, _Port()).rate_bps = rate_bps
        self.touch([port])

    def sampled(self, port: PortKey, rate_bps: int) -> None:
        """A port's capacity, as its counters state it. It may differ from the answer to AskCapacity."""
        there = self._ports.get(port)
        if there is not None and there.rate_bps != rate_bps:
            self.set_capacity(port, rate_bps)

    def forget_switch(self, dpid: int) -> None:
        """A switch connected or disconnected: its ports are unknown."""
        for port in [port for port in self._ports if port.dpid == dpid]:
            del self._ports[port]

    def forget(self, port: PortKey) -> None:
        """The switch refused a port's entries: they are sent again."""
        if there := self._ports.get(port):
            there.armed = ()

    def due(self, ranks: int, every_ns: int, now_ns: int) -> list[Request]:
        """What to send now, for some of the ports that were touched."""
        if now_ns >= self._all_due_ns:
            self._all_due_ns = now_ns + _ALL_EVERY_NS
            self.touch(self._ports)
        requests: list[Request] = []
        for port in list(islice(self._touched, PORTS_AT_ONCE)):
            del self._touched[port]
            there = self._ports.setdefault(port, _Port())
            if there.rate_bps is None:
                requests += [] if there.asked else [AskCapacity(port)]
                there.asked = True
            elif now_ns < there.due_ns:
                self._touched[port] = None
            elif not self._core.is_up(port):
                there.due_ns = now_ns + every_ns
                requests += self._arm(port, there, ranks)
        return requests

    def disarm_all(self) -> list[Request]:
        """What to send when the mode ends."""
        armed = [port for port, there in self._ports.items() if there.armed]
        self._ports.clear()
        self._touched.clear()
        return [Arm(port, ()) for port in armed]

    def activated(self, port: PortKey, cookie: int) -> Punish | None:
        """The clamp whose armed entry a switch activated. The port counts as disarmed from now on."""
        there = self._ports.get(port)
        if there is None:
            return None
        known = [*there.armed, *there.before]
        if there.armed:
            there.before, there.armed = there.armed, ()
        return next((one for one in known if self._cookie_of(one.flow.id) == cookie), None)

    def _arm(self, port: PortKey, there: _Port, ranks: int) -> list[Request]:
        k_pkts, hard_limit_ns = self._core.parameters.k_pkts, self._core.parameters.hard_limit_ns
        at_k = Alarm(port, k_pkts * _FRAME_BYTES, there.rate_bps or 0, queue_pkts=k_pkts)
        clamps = tuple(self._core.armed(at_k, ranks))
        if _alike(clamps, there.armed) and (hard_limit_ns == there.hard_limit_ns or not clamps):
            return []
        there.before, there.armed, there.hard_limit_ns = there.armed, clamps, hard_limit_ns
        return [Arm(port, clamps)]


def _alike(clamps: tuple[Punish, ...], armed: tuple[Punish, ...]) -> bool:
    """Whether the same flows are in the same order, with the same alpha and windows (within a segment)."""
    return len(clamps) == len(armed) and all(
        (new.flow.id, new.alpha) == (old.flow.id, old.alpha)
        and abs(new.window_bytes - old.window_bytes) < new.flow.mss_bytes
        for new, old in zip(clamps, armed, strict=True)
    )
