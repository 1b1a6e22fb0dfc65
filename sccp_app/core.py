"""SCCP: the fair share and Table I. Pure.

| symbol | name | unit | equation |
|---|---|---|---|
| link_capacity_i | capacity_bps | bit/s | 1 |
| common_RTT | common_rtt_us | µs | 1 |
| N_i | n_i | flows | 1 |
| fair_share_i | fair_share_bytes | bytes | 1 |

Table I (section III.C) has three entries of one priority, and a segment with FIN matches two of them. Here
each segment matches one, so that nothing depends on which entry a switch prefers:

- SYN (also SYN-ACK: it opens the data direction out of its own output port): INCREMENT_NI, no clamp, for
  a SYN's window is not scaled (RFC 7323) and comes before any data;
- FIN or RST without SYN: DECREMENT_NI and SET_WINDOW. They acknowledge data like other segments; left alone
  they would show the sender the whole window once. "FIN or RST" needs two entries: a mask cannot say "or";
- all others: SET_WINDOW.

Idle and ghost flows (section III.E) are the switch's: a flow leaves N_i while it sends nothing.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from fabric_app.pipeline import DATA, OPENING_OR_CLOSING, SYN


class PolicyError(ValueError):
    """A port policy that gives no fair share; the message names the value."""


class Act(enum.Enum):
    """The actions of Table I, on the output port of the segment or of the flow's data."""

    INCREMENT_NI = enum.auto()
    DECREMENT_NI = enum.auto()
    SET_WINDOW = enum.auto()


@dataclass(frozen=True, slots=True)
class Row:
    """An entry of Table I: segments with ``tcp flags & mask == flags``, and what is done to them."""

    flags: int
    mask: int
    acts: tuple[Act, ...]


TABLE_I: tuple[Row, ...] = (
    *(
        Row(flags, mask, (Act.INCREMENT_NI,) if flags == SYN else (Act.DECREMENT_NI, Act.SET_WINDOW))
        for flags, mask in OPENING_OR_CLOSING
    ),
    Row(*DATA, (Act.SET_WINDOW,)),
)
"""Disjoint, and together every TCP segment."""


@dataclass(frozen=True, slots=True)
class PortPolicy:
    """What every port is told. ``capacity_bps`` 0: its own rate. ``least_window_bytes`` 0: one MSS.

    Raises PolicyError for a common RTT of 0 and for negative values.
    """

    common_rtt_us: int
    capacity_bps: int = 0
    least_window_bytes: int = 0

    def __post_init__(self) -> None:
        if self.common_rtt_us <= 0:
            raise PolicyError(f"common_rtt_us is {self.common_rtt_us}; without it no flow could send")
        if self.capacity_bps < 0 or self.least_window_bytes < 0:
            raise PolicyError(f"capacity {self.capacity_bps} or window {self.least_window_bytes} is negative")


def fair_share_bytes(policy: PortPolicy, n_i: int, port_rate_bps: int = 0) -> int:
    """Equation (1), rounded down, for ``n_i`` flows; the whole for an empty port.

    ``port_rate_bps`` counts where the policy gives no capacity. The data plane does the same sum, and it
    keeps the least window. Raises PolicyError where neither gives a capacity.
    """
    capacity_bps = policy.capacity_bps or port_rate_bps
    if capacity_bps <= 0:
        raise PolicyError("the port's capacity is unknown; set capacity_bps")
    return capacity_bps * policy.common_rtt_us // 8_000_000 // max(n_i, 1)


def overshoot_bytes(capacity_bps: int, common_rtt_us: int, rtt_us: int) -> int:
    """What a port has to buffer in each round trip because the common RTT is above the true one (III.B)."""
    return capacity_bps * max(common_rtt_us - rtt_us, 0) // 8_000_000
