"""Mode "reflex": which entries each port is armed with, so that its switch takes the first step. Pure.

Armed are the clamps that the next alarms would bring, in rank order. The switch turns the first on as the
queue passes K and says so; the controller then puts a clamp of its own in its place and disarms the port:
from there on it chooses itself. A port is armed again once its alarm is over. Armed anew is only what has
changed: flows came or went, or a window by a segment; each port at most once in a while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

from flowdb.flow import PortKey
from sdtcp_app.core import Sdtcp
from sdtcp_app.decisions import Alarm, Punish

PORTS_AT_ONCE = 64
_FRAME_BYTES = 1514
_ALL_EVERY_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class AskCapacity:
    """Ask the switch for a port's capacity, which equation (1) needs."""

    port: PortKey


@dataclass(frozen=True, slots=True)
class Arm:
    """Arm a port with these clamps, by rank, in place of those before."""

    port: PortKey
    clamps: tuple[Punish, ...]


Request: TypeAlias = AskCapacity | Arm


@dataclass(slots=True)
class _Port:
    """``armed`` and what was ``before``, by cookie: the switch may still tell of those."""

    rate_bps: int | None = None
    asked: bool = False
    due_ns: int = 0
    armed: tuple[Punish, ...] = ()
    before: tuple[Punish, ...] = ()


class Reflexes:
    """What the ports are armed with. ``cookie_of``: a flow's id to the cookie of its armed entry."""

    def __init__(self, core: Sdtcp, cookie_of: Callable[[int], int]) -> None:
        self._core = core
        self._cookie_of = cookie_of
        self._ports: dict[PortKey, _Port] = {}
        self._touched: dict[PortKey, None] = {}
        self._all_due_ns = 0

    def touch(self, ports: Iterable[PortKey]) -> None:
        """The candidates of these ports may have changed."""
        self._touched |= dict.fromkeys(ports)

    def capacity(self, port: PortKey, rate_bps: int) -> None:
        """A port's rate, as its switch told it."""
        self._ports.setdefault(port, _Port()).rate_bps = rate_bps
        self.touch([port])

    def forget_switch(self, dpid: int) -> None:
        """A switch's session began or ended: nothing is known of its ports."""
        for port in [port for port in self._ports if port.dpid == dpid]:
            del self._ports[port]

    def forget(self, port: PortKey) -> None:
        """The switch refused a port's entries: they are sent again with the next round."""
        if there := self._ports.get(port):
            there.armed = ()

    def due(self, ranks: int, every_ns: int, now_ns: int) -> list[Request]:
        """What to send now, for some of the ports whose candidates may have changed."""
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
        """The mode is over."""
        armed = [port for port, there in self._ports.items() if there.armed]
        self._ports.clear()
        self._touched.clear()
        return [Arm(port, ()) for port in armed]

    def turned_on(self, port: PortKey, cookie: int) -> Punish | None:
        """The clamp whose armed entry a switch turned on; from now on the port counts as disarmed."""
        there = self._ports.get(port)
        if there is None:
            return None
        known = [*there.armed, *there.before]
        if there.armed:
            there.before, there.armed = there.armed, ()
        return next((one for one in known if self._cookie_of(one.flow.id) == cookie), None)

    def _arm(self, port: PortKey, there: _Port, ranks: int) -> list[Request]:
        k_pkts = self._core.parameters.k_pkts
        at_k = Alarm(port, k_pkts * _FRAME_BYTES, there.rate_bps or 0, queue_pkts=k_pkts)
        clamps = tuple(self._core.armed(at_k, ranks))
        if _alike(clamps, there.armed):
            return []
        there.before, there.armed = there.armed, clamps
        return [Arm(port, clamps)]


def _alike(clamps: tuple[Punish, ...], armed: tuple[Punish, ...]) -> bool:
    """Whether the same flows are armed in the same order, with windows that differ by less than a segment."""
    return len(clamps) == len(armed) and all(
        new.flow.id == old.flow.id and abs(new.window_bytes - old.window_bytes) < new.flow.mss_bytes
        for new, old in zip(clamps, armed, strict=True)
    )
