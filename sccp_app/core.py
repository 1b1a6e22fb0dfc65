"""SCCP: Table I and the policy of a port. Pure.

| symbol | name | unit | equation |
|---|---|---|---|
| link_capacity_i | capacity_bps | bit/s | 1 |
| common_RTT | common_rtt_us | µs | 1 |
| N_i | n_i | flows | 1 |
| fair_share_i | fair_share_bytes | bytes | 1 |

The data plane computes the fair share, equation (1) (`weir_base/window.py` and `weir_window.h`).

Table I (section III.C) has three entries of one priority, and a segment with FIN matches two of them. Here
the entries are disjoint, so the result does not depend on which entry a switch prefers:

- SYN, also SYN-ACK (it opens the data direction out of its own output port): INCREMENT_NI. No entry clamps
  it, because the window of a SYN is not scaled (RFC 7323). Where the data plane fits segments, it also
  limits the window of a SYN-ACK (`flow_start_window` in weir_mss.h).
- FIN or RST without SYN: DECREMENT_NI and SET_WINDOW. Such a segment acknowledges data; without a clamp it
  would advertise the whole window once. A mask cannot express "FIN or RST", so this takes two entries.
- All other segments: SET_WINDOW.

The switch handles idle and ghost flows (section III.E): a flow leaves N_i while it sends nothing.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from app_base.flow_rules import FlowRule
from app_base.headers import DATA, OPENING_OR_CLOSING, RST, SYN
from app_base.scope import Scope
from weir_base.window import bdp_bytes


class PolicyError(ValueError):
    """A port policy without a fair share; the message names the value."""


class Act(enum.Enum):
    """The actions of Table I, on the output port of the segment or of the flow's data."""

    INCREMENT_NI = enum.auto()
    DECREMENT_NI = enum.auto()
    SET_WINDOW = enum.auto()


@dataclass(frozen=True, slots=True)
class Row:
    """An entry of Table I: it matches segments with ``tcp flags & mask == flags``."""

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
"""The rows are disjoint. Together they match every TCP segment."""

TABLE_I_AS_PUBLISHED: tuple[Row, ...] = tuple(
    replace(row, acts=(Act.SET_WINDOW,)) if row.flags == RST else row for row in TABLE_I
)
"""Only SYN and FIN change N_i, so a connection that a RST ends is counted for ever (a ghost flow)."""


class Addition(enum.Enum):
    """What Weir adds to SCCP as published; a port can do without each.

    FITTING: MSS and window scale in SYNs are changed so that a share is a whole number of segments.
    FINER_SCALE: the part of that which makes the window scale finer. PSH: segments of flows that may have one
    in flight leave with PSH. ACTIVE_SENDERS: these share a port, not all of N_i. CROWD: the port remembers
    the peak of N_i and expects it in the next round. TWO_SEGMENTS: a flow whose receiver delays its ACKs gets
    a least window of two segments, or keep-alives follow its segments. Without FITTING there is no
    FINER_SCALE and no PSH. Without PSH the port sends no keep-alives.
    """

    FITTING = enum.auto()
    FINER_SCALE = enum.auto()
    PSH = enum.auto()
    ACTIVE_SENDERS = enum.auto()
    CROWD = enum.auto()
    TWO_SEGMENTS = enum.auto()


MOST_ROWS = 48
"""A bridge has 64 entries with wildcards (WEIR_MAX_LISTED). Table I takes six of them; others stay free."""


class Rank(enum.IntEnum):
    """The priorities of SCCP's entries. Table I has the paper's."""

    OTHERS = 50
    TABLE_I = 100
    CHOSEN = 150
    PROTECTED = 200


@dataclass(frozen=True, slots=True)
class ScopeRow:
    """An entry beside Table I: SET_WINDOW for the segments of some flows. ``observed``: it changes none.

    It matches the segments of one IP version that go from ``match.src`` to ``match.dst``.
    """

    rank: Rank
    ip_version: int
    match: FlowRule
    observed: bool


def scope_rows(scope: Scope) -> tuple[ScopeRow, ...]:
    """The entries that a scope with networks or protected flows needs beside Table I.

    If only some flows are chosen, the rows of Table I observe. A SYN matches none of their SET_WINDOWs, so
    the rows of OTHERS match it: then its offer stays as it is. All rows match both directions of a flow.
    """
    chosen = [FlowRule(src=network) for network in scope.networks]
    rows = [
        ScopeRow(rank, version, match, rank is Rank.PROTECTED)
        for rank, rules in ((Rank.CHOSEN, chosen), (Rank.PROTECTED, scope.spared))
        for rule in rules
        for match in (rule, rule.reverse)
        for version in _versions(rule)
    ]
    others = [ScopeRow(Rank.OTHERS, version, FlowRule(), True) for version in (4, 6)]
    return (*rows, *others) if scope.networks else tuple(rows)


def _versions(rule: FlowRule) -> tuple[int, ...]:
    given = rule.src or rule.dst
    return (given.version,) if given else (4, 6)


@dataclass(frozen=True, slots=True)
class PortPolicy:
    """The settings of every port. ``capacity_bps`` 0: the port's own rate. ``least_window_bytes`` 0: one MSS.

    ``corrects_allowance``: the switch corrects equation (1)'s capacity x common RTT of each port.
    ``omits``: the additions that ports do without.
    ``by_host``: the allowance is divided among hosts first; only with ``corrects_allowance``.

    Raises PolicyError for a common RTT of 0 and for negative values.
    """

    common_rtt_us: int
    capacity_bps: int = 0
    least_window_bytes: int = 0
    corrects_allowance: bool = False
    omits: frozenset[Addition] = frozenset()
    by_host: bool = False

    def __post_init__(self) -> None:
        if self.common_rtt_us <= 0:
            raise PolicyError(f"common_rtt_us is {self.common_rtt_us}; set it to at least 1 microsecond")
        if self.capacity_bps < 0 or self.least_window_bytes < 0:
            raise PolicyError(f"capacity {self.capacity_bps} or window {self.least_window_bytes} is negative")


def overshoot_bytes(capacity_bps: int, common_rtt_us: int, rtt_us: int) -> int:
    """The bytes that a port has to buffer because the common RTT exceeds the flows' RTT (section III.B)."""
    return bdp_bytes(capacity_bps, max(common_rtt_us - rtt_us, 0))
