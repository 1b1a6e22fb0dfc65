"""Flow reports: what the data plane tells of flows, batched to the controllers that asked for it.

The listeners together decide which kinds the data plane reports and how often it looks at idle and active
flows. Who asks for active or idle flows is first told, by the next look, of all that are there, and then that
these were all (the roll call): a controller that takes over has no other way to know which flows live, and
which ended while none was there. A controller that reads too slowly loses records, is told how many, and
holds nobody else back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import replace

from openflow_ext import wire
from openflow_ext.switch.dataplane import DataPlane, HostSettings, SweepTimes

RECORD_BYTES = 88
WAITING_MAX = 1 << 18
"""Records that wait for a slow controller; more are lost to it. The data plane's ring holds fewer."""
PAUSE_S = 0.05
"""The longest that records stay in the data plane's ring, which holds more than a second of them."""
RETRY_S = 0.01
SWEEP_S = 1.0
_SHORTEST_SWEEP_S = 0.1
_LIVING = wire.FlowKinds.ACTIVE | wire.FlowKinds.IDLE

Send = Callable[[bytes], bool]
"""Sends to a controller; False: it reads too slowly, and nothing was sent."""


class Listener:
    """One controller's session that asked for flow reports."""

    def __init__(self, bridge: int, config: wire.FlowReportConfig, version: int, send: Send) -> None:
        self.bridge = bridge
        self.config = config
        self.interval_s = config.interval_ms / 1000
        self.timer: asyncio.TimerHandle | None = None
        self.awaits_roll_call = bool(config.kinds & _LIVING)
        self._version = version
        self._send = send
        self._waiting = bytearray()
        self._lost = 0
        self._roll_called = False

    def __len__(self) -> int:
        """How many records wait."""
        return len(self._waiting) // RECORD_BYTES

    def add(self, records: bytes, lost: int) -> None:
        """Take records, of whatever kinds, and the count of those that the data plane lost."""
        wanted = int(self.config.kinds)
        starts = range(0, len(records), RECORD_BYTES)
        if not all(wanted >> records[at] & 1 for at in starts):
            records = b"".join(records[at : at + RECORD_BYTES] for at in starts if wanted >> records[at] & 1)
        room = (WAITING_MAX - len(self)) * RECORD_BYTES
        self._waiting += records[:room]
        self._lost += lost + len(records[room:]) // RECORD_BYTES

    def end_roll_call(self) -> None:
        """All flows that were there have been added: the last of the messages that now go out says so."""
        self.awaits_roll_call, self._roll_called = False, True

    def flush(self) -> bool:
        """Send all that waits; False: the controller reads too slowly, and some still does."""
        size = wire.FLOW_REPORT_MAX * RECORD_BYTES
        while self._waiting or self._lost or self._roll_called:
            ends = self._roll_called and len(self._waiting) <= size
            head = wire.FlowReport(lost=self._lost, roll_called=ends)
            if not self._send(_message(head, bytes(self._waiting[:size]), self._version)):
                return False
            self._lost, self._roll_called = 0, self._roll_called and not ends
            del self._waiting[:size]
        return True

    def stop(self) -> None:
        """Forget what waits."""
        if self.timer is not None:
            self.timer.cancel()


def _message(report: wire.FlowReport, records: bytes, version: int) -> bytes:
    """A FLOW_REPORT; the records are the data plane's, which writes them as they go over the wire."""
    head = wire.encode_message(report, version)
    return head[:2] + (len(head) + len(records)).to_bytes(2, "big") + head[4:] + records


class FlowReports:
    """All flow reports of a host. ``idle_s``: when a flow is idle where no controller says; 0: never."""

    def __init__(self, dataplane: DataPlane, simple_count: bool = False, idle_s: float = 0.0) -> None:
        self._dataplane = dataplane
        self._simple_count = simple_count
        self._idle_s = idle_s
        self._listeners: dict[Hashable, Listener] = {}
        self._look: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Set up the data plane and begin to read. Raises DataPlaneError."""
        self._loop = asyncio.get_running_loop()
        self._configure()

    def stop(self) -> None:
        """Stop to read; nobody listens any more. Raises DataPlaneError."""
        for listener in self._listeners.values():
            listener.stop()
        self._listeners.clear()
        self._configure()
        self._loop = None

    def ask(self, who: Hashable, listener: Listener) -> None:
        """``who`` wants what ``listener`` says, instead of what it had before. Raises DataPlaneError."""
        if not self._listeners:
            self._dataplane.reports()  # what came before is told to nobody
        self._forget(who)
        if listener.config.kinds:
            self._listeners[who] = listener
        self._configure()

    def leave(self, who: Hashable) -> None:
        """``who`` is gone. Raises DataPlaneError."""
        if self._forget(who):
            self._configure()

    def _forget(self, who: Hashable) -> bool:
        listener = self._listeners.pop(who, None)
        if listener is None:
            return False
        listener.stop()
        return True

    def _configure(self) -> None:
        kinds = 0
        for listener in self._listeners.values():
            kinds |= int(listener.config.kinds)
        pause_s = min([PAUSE_S, *(listener.interval_s for listener in self._listeners.values())])
        self._dataplane.configure_host(HostSettings(kinds, self._simple_count, report_wakes=pause_s == 0))
        self._read(pause_s)

    def times(self) -> SweepTimes:
        """The shortest times that a controller asked for, else the switch's own."""
        configs = [listener.config for listener in self._listeners.values()]
        idle_ms = min((config.idle_ms for config in configs if config.idle_ms), default=0)
        active_ms = min((config.active_ms for config in configs if config.active_ms), default=0)
        return SweepTimes(idle_s=idle_ms / 1000 or self._idle_s, active_s=active_ms / 1000)

    async def sweep(self) -> None:
        """Have the data plane look at all flows; call the roll where it is awaited. Raises DataPlaneError."""
        awaiting = [listener for listener in self._listeners.values() if listener.awaits_roll_call]
        await asyncio.to_thread(self._dataplane.sweep, replace(self.times(), roll_call=bool(awaiting)))
        if awaiting:
            self._collect()
        for listener in awaiting:
            listener.end_roll_call()
        for listener in self._listeners.values():
            self._schedule(listener, 0 if listener in awaiting else listener.interval_s)

    def sweep_every_s(self) -> float:
        """How often the data plane is to be swept, that those times are kept by half."""
        times = self.times()
        asked = [seconds / 2 for seconds in (times.idle_s, times.active_s) if seconds]
        return max(_SHORTEST_SWEEP_S, min([SWEEP_S, *asked]))

    def _read(self, pause_s: float) -> None:
        """Read every ``pause_s``; where somebody wants each record at once, when the data plane wakes us.

        Woken by the first flow of a burst, agent and controller would run while the others still shake hands.
        """
        if self._loop is None:
            return
        self._loop.remove_reader(self._dataplane.reports_fd())
        if self._look is not None:
            self._look.cancel()
        if self._listeners and pause_s:
            self._look = self._loop.call_later(pause_s, self._look_again, pause_s)
        elif self._listeners:
            self._loop.add_reader(self._dataplane.reports_fd(), self._take, 0)

    def _look_again(self, pause_s: float) -> None:
        self._look = asyncio.get_running_loop().call_later(pause_s, self._look_again, pause_s)
        self._take(pause_s)

    def _take(self, paused_s: float) -> None:
        """Pass on what the data plane has gathered for so long."""
        self._collect()
        for listener in self._listeners.values():
            self._schedule(listener, listener.interval_s - paused_s)

    def _collect(self) -> None:
        records, lost = self._dataplane.reports()
        for listener in self._listeners.values():
            listener.add(records.get(listener.bridge, b""), lost)

    def _schedule(self, listener: Listener, wait_s: float) -> None:
        if listener.timer is not None and len(listener) < wire.FLOW_REPORT_MAX:
            return
        if wait_s > 0 and len(listener) < wire.FLOW_REPORT_MAX:
            listener.timer = asyncio.get_running_loop().call_later(wait_s, self._flush, listener)
        else:
            self._flush(listener)

    def _flush(self, listener: Listener) -> None:
        listener.stop()
        listener.timer = None
        if not listener.flush():
            listener.timer = asyncio.get_running_loop().call_later(RETRY_S, self._flush, listener)
