"""RFC 8257's sender in plain Python: what weir_dctcp must do with each ACK."""

from __future__ import annotations

from dataclasses import dataclass

ONE, SHF = 65536, 4


def section_4_2(alpha: int, marked: int, acked: int) -> int:
    """The RFC's scaled computation, SCF = 65536 and SHF = 4."""
    scaled_m = ONE * marked // acked
    if alpha >> SHF == 0:
        alpha = 0
    alpha += (scaled_m >> SHF) - (alpha >> SHF)
    return min(alpha, ONE)


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
        self.alpha = section_4_2(self.alpha, self.marked, self.acked)
        self.window_end = snd_nxt
        self.acked = self.marked = 0
