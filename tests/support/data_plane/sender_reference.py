"""The senders of transports/ in plain Python: cwnd and ssthresh over the calls that the kernel makes.

From RFC 8257 (DCTCP), RFC 5681 (growth, restart after idle time) and the formulas of D2TCP, L2DCT, DCTCP+ and
Adaptive Pacing. The model sees what the kernel sees (ACKs, the state of recovery, the window of data, whether
cwnd limits the sender). It does not see what the control computed, except the random part of DCTCP+'s
slow_time. The kernel itself sets cwnd in two cases, which the model takes over: the loss window after a
timeout, and the undoing of a reduction that was for nothing.

Roundings: a reduction is rounded to the nearest segment, and half a segment is kept. D2TCP's time needed
counts whole segments. L2DCT's growth loses less than 1/65536 of a segment per ACK.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, floor

from tests.support.data_plane.dctcp_reference import ONE, Reference
from tests.support.data_plane.recorded_calls import LEFT_OUT, Snapshot
from transports.dctcp_plus import SlowTime, State

OPEN, DISORDER, CWR, RECOVERY, LOSS = range(5)
TX_START, TIMED_OUT = 0, 3
ACK_ECE = 4
LEAST_CWND, INITIAL_CWND = 2, 10
NOT_REDUCED, BY_MARKS, BY_LOSS = range(3)
LEAST_UNIT_NS, MOST_UNIT_NS, MOST_SLOW_NS = 100_000, 10_000_000, 100_000_000
HEADERS = 66


@dataclass
class Settings:
    """``base``: reno, dctcp, d2tcp, l2dct or dctcp_plus. Of D2TCP, ``end_byte`` and ``at_ns``: the deadline.

    Of Adaptive Pacing, ``buffer_bytes`` and ``flows``: B and n, with k = 1.
    """

    base: str
    end_byte: int = 0
    at_ns: int = 0
    buffer_bytes: int = 0
    flows: int = 0


@dataclass
class Model:
    """One connection. ``reductions``: how often marks, losses and timeouts reduced cwnd."""

    settings: Settings
    cwnd: int = 0
    count: int = 0
    ssthresh: int = 0
    reference: Reference = field(default_factory=lambda: Reference(0, 0))
    slow: SlowTime = field(default_factory=SlowTime)
    delivered: int = 0
    high_seq: int = 0
    reduction: int = NOT_REDUCED
    credit: int = 0
    start_bytes: int = 0
    first_una: int = 0
    reductions: dict[str, int] = field(default_factory=lambda: {"marks": 0, "loss": 0, "timeout": 0})

    def call(self, before: Snapshot, after: Snapshot) -> None:
        """A call that the kernel made, or left out."""
        if before.moment == LEFT_OUT:
            return
        handlers = {
            "weir_init": self.init,
            "weir_in_ack_event": self.in_ack_event,
            "weir_set_state": self.set_state,
            "weir_cwnd_event": self.cwnd_event,
            "weir_cong_control": self.cong_control,
            "weir_min_tso_segs": self.min_tso_segs,
        }
        if before.name in handlers:  # ssthresh, undo_cwnd and release set no window
            handlers[before.name](before, after)

    def init(self, now: Snapshot, _after: Snapshot) -> None:
        self.cwnd, self.count, self.ssthresh = now.cwnd, now.cwnd_cnt, now.ssthresh
        self.first_una, self.delivered, self.high_seq = now.una, now.delivered, now.high_seq

    def in_ack_event(self, now: Snapshot, after: Snapshot) -> None:
        ece, una = bool(now.argument & ACK_ECE), self._place(now.una)
        self.reference.on_ack(una, ece, una + (now.snd_nxt - now.una) % 2**32)
        if self.settings.base == "dctcp_plus":
            self._slow_down(now, after, ece)

    def _place(self, seq: int) -> int:
        return (seq - self.first_una) % 2**32

    def _slow_down(self, now: Snapshot, after: Snapshot, ece: bool) -> None:
        """The random part is what slow_time grew by; it is between 0 and a unit."""
        unit = Fraction(min(max(now.least_rtt_us * 1000, LEAST_UNIT_NS), MOST_UNIT_NS))
        drawn = Fraction(max(after.slow_ns - now.slow_ns, 0)) / unit
        assert drawn <= 1
        self.slow = self.slow.on_ack(
            is_at_floor=self.cwnd <= LEAST_CWND,
            is_congested=ece or now.state >= RECOVERY,
            unit=unit,
            part=drawn,
            most=Fraction(MOST_SLOW_NS),
        )
        assert 0 <= self.slow.slow_time - after.slow_ns < 1
        self.slow = SlowTime(self.slow.state, Fraction(after.slow_ns))

    def set_state(self, now: Snapshot, _after: Snapshot) -> None:
        """A tail loss probe repaired a loss: the state CWR ends with the ACK that began it."""
        if now.argument <= DISORDER and now.state == CWR and now.high_seq != self.high_seq:
            self._reduce(now, RECOVERY)

    def cwnd_event(self, now: Snapshot, _after: Snapshot) -> None:
        if now.argument == TIMED_OUT:
            self.reduction = NOT_REDUCED
            self._reduce(now, LOSS)
        elif now.argument == TX_START and now.idle_jiffies > now.rto:
            self._restart(now)

    def _restart(self, now: Snapshot) -> None:
        """RFC 5681, section 4.1, gradually: for each idle RTO half, down to the initial window."""
        idle, window = now.idle_jiffies, self.cwnd
        while idle > now.rto and window > INITIAL_CWND:
            idle, window = idle - now.rto, window // 2
        self.ssthresh = max(self.ssthresh, self.cwnd // 2 + self.cwnd // 4)
        self.cwnd = min(self.cwnd, max(window, INITIAL_CWND))
        una = self._place(now.una)
        self.reference = Reference(una, una, self.reference.alpha)
        self.start_bytes, self.slow = now.sent_bytes, SlowTime()

    def cong_control(self, now: Snapshot, _after: Snapshot) -> None:
        acked, self.delivered = (now.delivered - self.delivered) % 2**32, now.delivered
        if now.state not in (OPEN, DISORDER):
            self._reduce(now, now.state)
        if now.state not in (CWR, RECOVERY):
            self._grow(now, self._counted(now, acked))

    def _reduce(self, now: Snapshot, state: int) -> None:
        """Once per window of data. A loss counts from before the reduction by marks (section 3.5)."""
        wanted = BY_MARKS if state == CWR else BY_LOSS
        if self.high_seq != now.high_seq:
            self.high_seq, self.reduction = now.high_seq, NOT_REDUCED
        if self.reduction >= wanted:
            return
        self.reduction = wanted
        self.reductions["marks" if state == CWR else "timeout" if state == LOSS else "loss"] += 1
        part = self._penalty(now) / 2 if wanted == BY_MARKS else 0.5
        lost = floor(now.prior_cwnd * part + 0.5) if wanted == BY_MARKS else ceil(now.prior_cwnd / 2)
        self.ssthresh = max(now.prior_cwnd - lost, LEAST_CWND)
        if state != LOSS:
            self.cwnd = self.ssthresh

    def _penalty(self, now: Snapshot) -> float:
        alpha = self.reference.alpha / ONE
        if self.settings.base == "reno":
            return 1
        if self.settings.base == "d2tcp":
            return float(alpha ** self._imminence(now))
        if self.settings.base == "l2dct":
            return float(alpha ** (self._weight(now) / ONE))
        return alpha

    def _imminence(self, now: Snapshot) -> float:
        left_bytes = self.settings.end_byte - now.acked_bytes
        if left_bytes <= 0:
            return 1
        if now.now_ns >= self.settings.at_ns:
            return 0.5
        needed_us = ceil(left_bytes / now.mss) * now.srtt_us / (0.75 * now.prior_cwnd)
        return min(max(needed_us / ((self.settings.at_ns - now.now_ns) / 1000), 0.5), 2)

    def _weight(self, now: Snapshot) -> int:
        sent = now.sent_bytes - self.start_bytes
        part = min(max(Fraction(sent - 200_000, 800_000), Fraction(0)), Fraction(1))
        return ceil(ONE * (Fraction(5, 2) - part * Fraction(19, 8)))

    def _counted(self, now: Snapshot, acked: int) -> int:
        """How many of the acknowledged segments count for growth."""
        if self.settings.base == "dctcp_plus":
            return acked if self.slow.state is State.NORMAL else 0
        if self.settings.base != "l2dct" or self.cwnd < self.ssthresh:
            return acked
        self.credit += floor(Fraction(acked * self._weight(now)) / Fraction(5, 2))
        whole, self.credit = divmod(self.credit, ONE)
        return whole

    def _grow(self, now: Snapshot, acked: int) -> None:
        """RFC 5681, section 3.1, in whole segments; only if cwnd is what limits the sender."""
        in_slow_start = self.cwnd < self.ssthresh
        if not now.is_cwnd_limited and not (in_slow_start and self.cwnd < 2 * now.max_packets_out):
            return
        if in_slow_start:
            grown = min(self.cwnd + acked, self.ssthresh)
            acked, self.cwnd = acked - (grown - self.cwnd), grown
            if not acked:
                return
        window = self.cwnd
        if self.count >= window:
            self.count, self.cwnd = 0, self.cwnd + 1
        more, self.count = divmod(self.count + acked, window)
        self.cwnd += more

    def min_tso_segs(self, now: Snapshot, _after: Snapshot) -> None:
        """Adaptive Pacing: before the first data, cwnd is one that needs no pacing."""
        if self.settings.flows and not now.data_segs_out:
            fits = self.settings.buffer_bytes // (self.settings.flows * (now.mss + HEADERS))
            self.cwnd = min(self.cwnd, max(fits, 1))
