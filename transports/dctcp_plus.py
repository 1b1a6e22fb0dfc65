"""The model of DCTCP+: algorithm 1 of Miao and others (ICPP 2015), and the interval between packets.

| symbol | argument | unit |
|---|---|---|
| slow_time | ``slow_time`` | any, the same for all |
| backoff_time_unit | ``unit`` | the same |
| divisor_factor | ``DIVISOR`` | 1 |
| threshold_T | ``unit`` x ``THRESHOLD`` | the same |

Inferred, because the paper was not at hand: the unit is the shortest RTT, the threshold an eighth of it, and
cwnd stays at its floor while there is a slow_time. Not implemented: the variant without random parts.

weir_dctcp_plus.h is the same in integers.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from fractions import Fraction

DIVISOR = 2
THRESHOLD = Fraction(1, 8)


class State(enum.IntEnum):
    """NORMAL: DCTCP. TIME_INC, TIME_DES: slow_time grew, or shrank, with the last ACK."""

    NORMAL = 0
    TIME_INC = 1
    TIME_DES = 2


@dataclass(frozen=True, slots=True)
class SlowTime:
    """The state of a connection."""

    state: State = State.NORMAL
    slow_time: Fraction = Fraction(0)

    def on_ack(
        self, *, is_at_floor: bool, is_congested: bool, unit: Fraction, part: Fraction, most: Fraction
    ) -> SlowTime:
        """The state after an ACK.

        ``is_at_floor``: cwnd cannot shrink. ``is_congested``: the ACK carries ECE, or a loss is being
        repaired. ``part``: random, uniform in [0, 1). ``most``: the largest slow_time.
        """
        if self.state is State.NORMAL and not (is_at_floor and is_congested):
            return self
        if is_congested:
            return SlowTime(State.TIME_INC, min(self.slow_time + part * unit, most))
        if self.state is State.TIME_INC or self.slow_time > unit * THRESHOLD:
            return SlowTime(State.TIME_DES, self.slow_time / DIVISOR)
        return SlowTime()

    def interval(self, window: int, rtt: Fraction) -> Fraction:
        """The interval between packets; 0: that of DCTCP, which the ACKs give."""
        return Fraction(0) if self.state is State.NORMAL else rtt / window + self.slow_time
