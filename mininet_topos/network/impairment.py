"""Impairments of the hosts' links: delay, jitter, loss, duplication, reordering. Pure.

They apply to packets that a host sends. With the kernel's netem a packet waits at the host's interface. The
delay line, a program between host and switch, divides the delay between both directions of the link. Either
way a packet from one host to another takes one delay and a round trip takes two. No switch queue, which the
lab measures, holds packets that wait for their delay.
"""

from __future__ import annotations

from dataclasses import dataclass

from mininet_topos.errors import BadExperiment

MOST_DELAY_MS = 10_000.0
MOST_LOSS_PERCENT = 90.0
JITTERS = ("uniform", "normal")
BOUND_US, BOUND_PART = 50.0, 0.01
"""How much later than stated a packet may leave, at the 99th percentile: 50 us and 1 % of the delay."""


@dataclass(frozen=True, slots=True)
class Impairment:
    """The impairment of what each host sends.

    ``delay_ms``: one-way delay. ``jitter_ms``: `uniform` between -jitter and +jitter, or `normal` with this
    standard deviation; it keeps the order of packets. ``loss_percent``, ``duplicate_percent``: independent
    probabilities. ``reorder_percent``: packets that are sent without delay and so overtake others.
    """

    delay_ms: float = 0.0
    loss_percent: float = 0.0
    jitter_ms: float = 0.0
    jitter: str = JITTERS[0]
    duplicate_percent: float = 0.0
    reorder_percent: float = 0.0

    def __bool__(self) -> bool:
        return bool(self.delay_ms or self.loss_percent) or not self.is_of_netem

    @property
    def round_trip_ms(self) -> float:
        """What the delay adds to a round trip between two hosts."""
        return 2 * self.delay_ms

    @property
    def is_of_netem(self) -> bool:
        """Whether the lab may use netem: it does so for delay and loss only."""
        return not (self.jitter_ms or self.duplicate_percent or self.reorder_percent)

    def check(self) -> None:
        """Raise BadExperiment if a value is out of range."""
        most = {
            "delay_ms": MOST_DELAY_MS,
            "loss_percent": MOST_LOSS_PERCENT,
            "jitter_ms": self.delay_ms,
            "duplicate_percent": 100.0,
            "reorder_percent": 100.0,
        }
        for name, largest in most.items():
            if not 0 <= getattr(self, name) <= largest:
                raise BadExperiment(f"{name} is {getattr(self, name)}; want 0 to {largest:g}")
        if self.jitter not in JITTERS:
            raise BadExperiment(f"jitter is {self.jitter!r}; want {' or '.join(JITTERS)}")

    def __str__(self) -> str:
        parts = [f"{self.delay_ms:g} ms delay", f"{self.loss_percent:g} % loss"]
        if self.jitter_ms:
            parts.append(f"{self.jitter_ms:g} ms {self.jitter} jitter")
        if self.duplicate_percent:
            parts.append(f"{self.duplicate_percent:g} % duplicated")
        if self.reorder_percent:
            parts.append(f"{self.reorder_percent:g} % reordered")
        return ", ".join(parts)


def bound_us(delay_us: float) -> float:
    """Return how much later than stated a packet may be at the 99th percentile."""
    return BOUND_US + BOUND_PART * delay_us
