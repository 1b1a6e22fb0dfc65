"""Flow reports of the data plane, in batches for the controllers that asked for them.

Each session that asked is a listener. The listeners together decide which kinds of report the data plane
makes, and how often it checks active and idle flows.

A controller that asks for active or idle flows first gets a roll call: a report of every flow, whose last
message says that it is complete. A controller that takes over has no other way to learn which flows are open
and which ended while no controller was connected.

A controller that reads too slowly loses records. It learns how many, and it does not delay the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import replace

from openflow_ext import wire
from openflow_ext.switch.dataplane.interface import DataPlane, HostSettings, SweepTimes

RECORD_BYTES = 88
WAITING_MAX = 1 << 18
"""The most records that wait for a slow controller. Further ones are lost. The ring holds fewer."""
PAUSE_S = 0.05
"""The longest time that records stay in the data plane's ring, which has room for more than a second."""
RETRY_S = 0.01
"""The pause before the agent sends again to a controller that reads too slowly."""
SWEEP_S = 1.0
"""The longest time between two sweeps of the flow tables."""
_SHORTEST_SWEEP_S = 0.1
_LIVING = wire.FlowKinds.ACTIVE | wire.FlowKinds.IDLE

Send = Callable[[bytes], bool]
"""Sends a message to a controller. False: nothing was sent, because the controller reads too slowly."""


class Listener:
    """A session that asked for flow reports."""

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
        """The number of waiting records."""
        return len(self._waiting) // RECORD_BYTES

    @property
    def has_news(self) -> bool:
        """Whether a message has to be sent."""
        return bool(self._waiting or self._lost or self._roll_called)

    def add(self, records: bytes, lost: int) -> None:
        """Queue the records of the wanted kinds. ``lost``: how many records the data plane lost."""
        wanted = int(self.config.kinds)
        starts = range(0, len(records), RECORD_BYTES)
        if not all(wanted >> records[at] & 1 for at in starts):
            records = b"".join(records[at : at + RECORD_BYTES] for at in starts if wanted >> records[at] & 1)
        room = (WAITING_MAX - len(self)) * RECORD_BYTES
        self._waiting += records[:room]
        self._lost += lost + len(records[room:]) // RECORD_BYTES

    def end_roll_call(self) -> None:
        """Every flow has been added: the last of the messages sent now marks the roll call complete."""
        self.awaits_roll_call, self._roll_called = False, True

    def flush(self, now_ns: int) -> bool:
        """Send the waiting records at a time of the data plane's clock.

        False: some still wait, because the controller reads too slowly.
        """
        size = wire.FLOW_REPORT_MAX * RECORD_BYTES
        now_s, now_ms = divmod(now_ns // 1_000_000, 1000)
        while self.has_news:
            ends = self._roll_called and len(self._waiting) <= size
            head = wire.FlowReport(lost=self._lost, roll_called=ends, now_ms=now_ms, now_s=now_s)
            if not self._send(_message(head, bytes(self._waiting[:size]), self._version)):
                return False
            self._lost, self._roll_called = 0, self._roll_called and not ends
            del self._waiting[:size]
        return True

    def stop(self) -> None:
        """Cancel the timer."""
        if self.timer is not None:
            self.timer.cancel()


def _message(report: wire.FlowReport, records: bytes, version: int) -> bytes:
    """A FLOW_REPORT. The data plane writes ``records`` in the layout of the wire."""
    head = wire.encode_message(report, version)
    return head[:2] + (len(head) + len(records)).to_bytes(2, "big") + head[4:] + records


class FlowReports:
    """All flow reports of a host.

    ``simple_count``: N_i is SCCP's plain integer. ``idle_s``: a flow is idle after this time without payload
    if no controller sets another time; 0: never.
    """

    def __init__(self, dataplane: DataPlane, simple_count: bool = False, idle_s: float = 0.0) -> None:
        self._dataplane = dataplane
        self._simple_count = simple_count
        self._idle_s = idle_s
        self._listeners: dict[Hashable, Listener] = {}
        self._read_timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Configure the data plane and start reading its reports. Raises DataPlaneError."""
        self._loop = asyncio.get_running_loop()
        self._configure()

    def stop(self) -> None:
        """Remove all listeners and stop reading. Raises DataPlaneError."""
        for listener in self._listeners.values():
            listener.stop()
        self._listeners.clear()
        self._configure()
        self._loop = None

    def ask(self, session: Hashable, listener: Listener) -> None:
        """Replace the listener of ``session``. Raises DataPlaneError."""
        if not self._listeners:
            self._dataplane.reports()  # discard the reports from before anybody asked
        self._forget(session)
        if listener.config.kinds:
            self._listeners[session] = listener
        self._configure()

    def leave(self, session: Hashable) -> None:
        """``session`` has ended. Raises DataPlaneError."""
        if self._forget(session):
            self._configure()

    def _forget(self, session: Hashable) -> bool:
        listener = self._listeners.pop(session, None)
        if listener is None:
            return False
        listener.stop()
        return True

    def _configure(self) -> None:
        kinds = 0
        for listener in self._listeners.values():
            kinds |= int(listener.config.kinds)
        pause_s = min([PAUSE_S, *(listener.interval_s for listener in self._listeners.values())])
        self._dataplane.configure_host(HostSettings(kinds, self._simple_count, report_wakes=bool(kinds)))
        self._read(pause_s)

    def times(self) -> SweepTimes:
        """The shortest times that the controllers asked for; without any, the switch's own."""
        configs = [listener.config for listener in self._listeners.values()]
        idle_ms = min((config.idle_ms for config in configs if config.idle_ms), default=0)
        active_ms = min((config.active_ms for config in configs if config.active_ms), default=0)
        return SweepTimes(idle_s=idle_ms / 1000 or self._idle_s, active_s=active_ms / 1000)

    async def sweep(self) -> None:
        """Sweep the flow tables, with a roll call if a listener awaits one. Raises DataPlaneError."""
        awaiting = [listener for listener in self._listeners.values() if listener.awaits_roll_call]
        times = replace(self.times(), roll_call=bool(awaiting))
        if not awaiting and not self._dataplane.sweep_is_due(times):
            return
        await asyncio.to_thread(self._dataplane.sweep, times)
        if awaiting:
            self._collect()
        for listener in awaiting:
            listener.end_roll_call()
        for listener in self._listeners.values():
            self._schedule(listener, 0 if listener in awaiting else listener.interval_s)

    def sweep_every_s(self) -> float:
        """The time between two sweeps: half of the shortest time in ``times``."""
        times = self.times()
        asked = [seconds / 2 for seconds in (times.idle_s, times.active_s) if seconds]
        return max(_SHORTEST_SWEEP_S, min([SWEEP_S, *asked]))

    def _read(self, pause_s: float) -> None:
        """Read the reports ``pause_s`` after the first of them.

        A pause is better in a burst of connections: otherwise agent and controller would compete for the CPU
        with the handshakes of the other connections. Without reports nothing runs.
        """
        if self._loop is None:
            return
        self._loop.remove_reader(self._dataplane.reports_fd())
        if self._read_timer is not None:
            self._read_timer.cancel()
        if self._listeners:
            self._loop.add_reader(self._dataplane.reports_fd(), self._first_waits, pause_s)

    def _first_waits(self, pause_s: float) -> None:
        """A report waits. It is read after the pause, with those that follow."""
        if not pause_s:
            self._take(pause_s)
        elif self._loop is not None:
            self._loop.remove_reader(self._dataplane.reports_fd())
            self._read_timer = self._loop.call_later(pause_s, self._pause_is_over, pause_s)

    def _pause_is_over(self, pause_s: float) -> None:
        self._take(pause_s)
        self._read(pause_s)

    def _take(self, paused_s: float) -> None:
        """Pass the reports of the last ``paused_s`` to the listeners."""
        self._collect()
        for listener in self._listeners.values():
            self._schedule(listener, listener.interval_s - paused_s)

    def _collect(self) -> None:
        records, lost = self._dataplane.reports()
        for listener in self._listeners.values():
            listener.add(records.get(listener.bridge, b""), lost)

    def _schedule(self, listener: Listener, wait_s: float) -> None:
        if not listener.has_news or (listener.timer is not None and len(listener) < wire.FLOW_REPORT_MAX):
            return
        if wait_s > 0 and len(listener) < wire.FLOW_REPORT_MAX:
            listener.timer = asyncio.get_running_loop().call_later(wait_s, self._flush, listener)
        else:
            self._flush(listener)

    def _flush(self, listener: Listener) -> None:
        listener.stop()
        listener.timer = None
        if not listener.flush(self._dataplane.now_ns()):
            listener.timer = asyncio.get_running_loop().call_later(RETRY_S, self._flush, listener)
