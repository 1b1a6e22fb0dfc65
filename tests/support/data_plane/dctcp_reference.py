"""The DCTCP sender of RFC 8257 in plain Python, to which tests compare weir_dctcp."""

from __future__ import annotations

from dataclasses import dataclass

ONE = 65536


def section_3_3(alpha: int, marked: int, acked: int) -> int:
    """alpha (1 - g) + g M with g = 1/16, in units of 1 / ONE, rounded down."""
    return (15 * alpha * acked + ONE * marked) // (16 * acked)


@dataclass
class Reference:
    """The sender of section 3.3; sequence numbers are plain integers that do not wrap."""

    una: int
    window_end: int
    alpha: int = ONE
    acked: int = 0
    marked: int = 0

    def on_ack(self, una: int, ece: bool, snd_nxt: int) -> None:
        acked, self.una = una - self.una, una
        self.acked += acked
        self.marked += acked if ece else 0
        if una <= self.window_end:
            return
        self.alpha = section_3_3(self.alpha, self.marked, self.acked)
        self.window_end = snd_nxt
        self.acked = self.marked = 0
