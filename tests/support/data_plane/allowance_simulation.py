"""A link with window-limited flows, packet by packet, whose allowance the law of weir_window.h corrects.

The port is that of weir_allowance.h. It notes idle time of the link and the least length of the queue, lets
the allowance depart once after a correction, and corrects it when it has departed again. Senders answer each
ACK at once, as far as their window allows. The queue is unlimited, so that its length is a result.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

SEGMENT_BYTES = 1514
BUFFER_BYTES = 150_000
CAPACITY_BPS = 100_000_000
NS_PER_BYTE = 8e9 / CAPACITY_BPS
FITS_BYTES = BUFFER_BYTES * 7 // 8
MOST_BYTES = 65535 << 14
TARGET_BYTES = (2 * SEGMENT_BYTES, BUFFER_BYTES // 16)


@dataclass
class Flow:
    """A flow that always has data: ``in_flight`` segments are on the way or wait for their ACK."""

    dither: float
    in_flight: int = 0
    paused: bool = False


@dataclass
class Simulation:
    """``rtt_ns`` gives the RTT without queueing at a time, ``jitter`` the largest part by which it varies."""

    law: Callable[..., int]
    rtt_ns: Callable[[float], float]
    flows: int
    jitter: float = 0.0
    allowance: float = 7_500
    now_ns: float = 0.0
    sent: list[tuple[float, float, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.flows)
        self._flows = [Flow(number * 0.618 % 1) for number in range(self.flows)]
        self._events: list[tuple[float, int, Flow]] = []
        self._count = 0
        self._free_ns = 0.0
        self._settled = self._starved_before = False
        self._begin()

    def _begin(self) -> None:
        self._start_ns, self._starved_ns, self._departed = self.now_ns, 0.0, 0
        self._queue_min = self._queue()

    def _queue(self) -> int:
        """The bytes that wait behind the one that is sent."""
        return max(round((self._free_ns - self.now_ns) / NS_PER_BYTE) - SEGMENT_BYTES, 0)

    def pause(self, flows: int) -> None:
        """So many flows have nothing more to send."""
        for flow in self._flows[:flows]:
            flow.paused = True

    def run(self, until_ns: float) -> None:
        """Let time pass."""
        for flow in self._flows:
            self._fill(flow)
        while self._events and self._events[0][0] <= until_ns:
            self.now_ns, _, flow = heapq.heappop(self._events)
            flow.in_flight -= 1
            self._fill(flow)
        self.now_ns = until_ns

    def _window(self, flow: Flow) -> int:
        share = self.allowance / sum(not one.paused for one in self._flows)
        return max(int(share / SEGMENT_BYTES + flow.dither), 1)

    def _fill(self, flow: Flow) -> None:
        while not flow.paused and flow.in_flight < self._window(flow):
            flow.in_flight += 1
            self._send(flow)

    def _send(self, flow: Flow) -> None:
        self._queue_min = min(self._queue_min, self._queue())
        self._starved_ns += max(self.now_ns - self._free_ns, 0)
        self._free_ns = max(self._free_ns, self.now_ns) + SEGMENT_BYTES * NS_PER_BYTE
        self.sent.append((self.now_ns, self.allowance, self._queue()))
        rtt_ns = self.rtt_ns(self.now_ns) * (1 + self._random.uniform(0, self.jitter))
        self._count += 1
        heapq.heappush(self._events, (self._free_ns + rtt_ns, self._count, flow))
        self._departed += SEGMENT_BYTES
        if self._departed >= self.allowance:
            self._correct() if self._settled else self._begin()
            self._settled = not self._settled

    def _correct(self) -> None:
        length_ns = self.now_ns - self._start_ns
        active = sum(not one.paused for one in self._flows)
        target = min(max(self.allowance / 8, TARGET_BYTES[0]), TARGET_BYTES[1])
        seen = (int(length_ns), int(self._starved_ns), self._departed, self._queue_min, self._starved_before)
        self._starved_before = self._starved_ns > length_ns / 256
        least = min(active * SEGMENT_BYTES, FITS_BYTES)
        most = min(MOST_BYTES, int(self.allowance) + FITS_BYTES // 2)
        self.allowance = self.law(int(self.allowance), *seen, int(target), least, most)
        self._begin()

    def utilisation(self, from_ns: float, to_ns: float) -> float:
        """The part of the time in which the link was busy."""
        segments = sum(from_ns <= at < to_ns for at, _, _ in self.sent)
        return segments * SEGMENT_BYTES * NS_PER_BYTE / (to_ns - from_ns)

    def queue_p95(self, from_ns: float) -> int:
        """The length of the queue, in bytes, which it does not exceed at 95 % of the arrivals."""
        lengths = sorted(length for at, _, length in self.sent if at >= from_ns)
        return lengths[int(0.95 * len(lengths))]


def law_of(ffi: Any, library: Any) -> Callable[..., int]:
    """`weir_next_allowance`, with the arguments of `weir_base.window.next_allowance_bytes`."""

    def law(
        allowance: int, length_ns: int, starved_ns: int, departed: int, queue_min: int, starved_before: bool,
        target: int, least: int, most: int,
    ) -> int:  # fmt: skip
        seen = ffi.new(
            "struct weir_interval *", (length_ns, starved_ns, departed, queue_min, int(starved_before))
        )
        return int(library.weir_next_allowance(allowance, seen, target, least, most))

    return law
