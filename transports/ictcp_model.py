"""The model of ICTCP (Wu, Feng, Guo and Zhang, CoNEXT 2010): the window of a connection after each segment.

| symbol | name | unit |
|---|---|---|
| C | ``capacity_bps`` | bit/s |
| BW_A | ``free_bps`` | bit/s |
| T | ``subslot_ns`` | ns |
| RTT_i | ``rtt_ns`` | ns |
| rwnd_i | ``window_bytes`` | bytes |
| b_i^m | ``measured_bps`` | bit/s |

All quantities are integers, and each division rounds down. weir_ictcp.h does the same in C, so both have
equal windows. The header of ictcp.bpf.c names the rules that were inferred. Not implemented: limits
of the machine's words (rates of a time below a microsecond, and clocks before 0).
"""

from __future__ import annotations

from dataclasses import dataclass, field

NS_PER_S = 1_000_000_000
LEAST_SEGMENTS = 2
LOW_INTERVALS = 3
MOST_WINDOW_BYTES = 1 << 30
MOST_COUNTED_BYTES = 1 << 31
FIRST_SUBSLOT_NS, LEAST_SUBSLOT_NS, MOST_SUBSLOT_NS = 1_000_000, 100_000, NS_PER_S
LEAST_IDLE_NS, IDLE_ROUND_TRIPS = 50_000_000, 6
TIMESTAMPS = 1 << 32


def rate_bps(nbytes: int, time_ns: int) -> int:
    """Return the rate of so many bytes, of which 2^31 count, in a time."""
    return min(nbytes, MOST_COUNTED_BYTES) * 8 * NS_PER_S // time_ns


@dataclass(frozen=True, slots=True)
class Departure:
    """A segment that leaves the receiving host.

    ``received_bytes``: by its connection since it opened. ``srtt_us``: the host's own RTT, 0 if unknown.
    ``timestamps``: value and echo of the segment, if its connection has timestamps.
    """

    now_ns: int
    received_bytes: int
    payload: int
    mss: int
    srtt_us: int = 0
    timestamps: tuple[int, int] | None = None


@dataclass(slots=True)
class Connection:
    """A connection. ``since``: start and received bytes of the RTT that is measured; None: in the first RTT.

    ``slot``: the last slot in which it received. ``probe``: time and timestamp that the next echo answers.
    """

    window_bytes: int = 0
    mss: int = 0
    in_slow_start: bool = False
    low_intervals: int = 0
    measured_bps: int = 0
    began_ns: int = 0
    since: tuple[int, int] | None = None
    received_bytes: int = 0
    active_ns: int = 0
    rtt_ns: int = 0
    slot: int = 0
    probe: tuple[int, int] | None = None
    last_value: int = 0

    @property
    def least_bytes(self) -> int:
        """The least window."""
        return LEAST_SEGMENTS * self.mss

    def is_idle(self, now_ns: int) -> bool:
        """Whether no payload passed for six RTTs, and at least 50 ms."""
        return now_ns - self.active_ns > max(IDLE_ROUND_TRIPS * self.rtt_ns, LEAST_IDLE_NS)

    def restart(self, mss: int, now_ns: int) -> None:
        """Begin slow start with the least window."""
        self.mss, self.window_bytes = mss, LEAST_SEGMENTS * mss
        self.in_slow_start, self.low_intervals, self.measured_bps = True, 0, 0
        self.began_ns, self.since, self.probe = now_ns, None, None

    def note_timestamps(self, now_ns: int, payload: int, value: int, echo: int) -> None:
        """Measure the RTT: from the first segment with a new timestamp to its echo, or a later one."""
        if self.probe and (echo - self.probe[1]) % TIMESTAMPS < TIMESTAMPS // 2:
            self.rtt_ns, self.probe = max(now_ns - self.probe[0], 1), None
        if value != self.last_value and (payload or not self.probe):
            self.probe = now_ns, value
        self.last_value = value


@dataclass(slots=True)
class Receiver:
    """The receiving host's interface. Half of a slot measures traffic; in the other half windows grow."""

    capacity_bps: int
    slot: int = 0
    subslot_ns: int = FIRST_SUBSLOT_NS
    began_ns: int = 0
    may_grow: bool = False
    arrived_bytes: int = 0
    free_bps: int = 0
    quota_bps: int = 0
    mean_window_bytes: int = 0
    increases: int = 0
    decreases: int = 0
    restarts: int = 0
    _volumes: list[tuple[int, int]] = field(default_factory=list)
    _windows: list[int] = field(default_factory=list)

    def arrive(self, now_ns: int, frame_bytes: int) -> None:
        """A packet arrives."""
        self._tick(now_ns)
        if not self.may_grow:
            self.arrived_bytes += frame_bytes

    def depart(self, flow: Connection, seen: Departure) -> int:
        """Return the window with which a segment of a connection leaves."""
        self._tick(seen.now_ns)
        is_new = not flow.window_bytes
        if is_new:
            flow.received_bytes = seen.received_bytes
        if is_new or flow.is_idle(seen.now_ns):
            flow.restart(seen.mss, seen.now_ns)
            self.restarts += 1
        if seen.timestamps:
            flow.note_timestamps(seen.now_ns, seen.payload, *seen.timestamps)
        flow.rtt_ns = flow.rtt_ns or 1000 * seen.srtt_us
        if is_new or seen.payload or seen.received_bytes != flow.received_bytes:
            flow.active_ns = seen.now_ns
        self._count(flow, seen.received_bytes)
        self._adjust(flow, seen.now_ns)
        return flow.window_bytes

    def _tick(self, now_ns: int) -> None:
        """End the half of a slot if its time is over."""
        if not self.slot or (self.may_grow and now_ns - self.began_ns >= self.subslot_ns):
            self._begin_slot(now_ns)
        elif now_ns - self.began_ns >= self.subslot_ns:
            arrived_bps = rate_bps(self.arrived_bytes, now_ns - self.began_ns)
            self.free_bps = self.quota_bps = max(0, self.capacity_bps // 10 * 9 - arrived_bps)
            self.began_ns, self.may_grow = now_ns, True

    def _begin_slot(self, now_ns: int) -> None:
        """T becomes the mean RTT by volume; the mean window is that of the connections that received."""
        if volume := sum(nbytes for nbytes, _ in self._volumes):
            mean_us = sum(nbytes * rtt_us for nbytes, rtt_us in self._volumes) // volume
            self.subslot_ns = min(max(1000 * mean_us, LEAST_SUBSLOT_NS), MOST_SUBSLOT_NS)
        self.mean_window_bytes = sum(self._windows) // len(self._windows) if self._windows else 0
        self._volumes.clear()
        self._windows.clear()
        self.slot += 1
        self.began_ns, self.may_grow = now_ns, False
        self.arrived_bytes = self.quota_bps = 0

    def _count(self, flow: Connection, received_bytes: int) -> None:
        """Count what a connection received, and its window once in each slot."""
        more, flow.received_bytes = received_bytes - flow.received_bytes, received_bytes
        if not more:
            return
        self._volumes.append((more, flow.rtt_ns // 1000))
        if flow.slot != self.slot:
            flow.slot = self.slot
            self._windows.append(flow.window_bytes)

    def _adjust(self, flow: Connection, now_ns: int) -> None:
        """Choose the window after an interval of two RTTs, of which the second is measured."""
        rtt_ns = flow.rtt_ns or self.subslot_ns
        elapsed_ns = now_ns - (flow.since[0] if flow.since else flow.began_ns)
        if elapsed_ns <= 0 or elapsed_ns < rtt_ns:
            return
        if not flow.since:
            flow.since = now_ns, flow.received_bytes
            return
        sample_bps = rate_bps(flow.received_bytes - flow.since[1], elapsed_ns)
        measured_bps = max(sample_bps, (3 * flow.measured_bps + sample_bps) // 4)
        expected_bps = max(measured_bps, rate_bps(flow.window_bytes, rtt_ns))
        permille = (expected_bps - measured_bps) * 1000 // expected_bps if expected_bps else 0
        is_scarce = self.free_bps < self.capacity_bps // 5
        if is_scarce and 0 < self.mean_window_bytes < flow.window_bytes:
            self._decrease(flow)
        elif permille <= max(100, 1000 * flow.mss // flow.window_bytes):
            if not self.may_grow:
                return
            self._increase(flow, rtt_ns)
        else:
            flow.in_slow_start = False
            flow.low_intervals = flow.low_intervals + 1 if permille > 500 else 0
            if flow.low_intervals >= LOW_INTERVALS:
                self._decrease(flow)
        flow.measured_bps = measured_bps
        flow.began_ns, flow.since = now_ns, None

    def _increase(self, flow: Connection, rtt_ns: int) -> None:
        """The window doubles in slow start, else grows by a segment, if the quota allows the rate."""
        more = flow.window_bytes if flow.in_slow_start else flow.mss
        flow.low_intervals = 0
        more_bps = rate_bps(more, rtt_ns)
        if flow.window_bytes + more > MOST_WINDOW_BYTES or more_bps > self.quota_bps:
            flow.in_slow_start = False
            return
        self.quota_bps -= more_bps
        flow.window_bytes += more
        self.increases += 1

    def _decrease(self, flow: Connection) -> None:
        """The window shrinks by a segment, to the least window at most."""
        flow.in_slow_start, flow.low_intervals = False, 0
        if flow.window_bytes > flow.least_bytes:
            flow.window_bytes = max(flow.window_bytes - flow.mss, flow.least_bytes)
            self.decreases += 1
