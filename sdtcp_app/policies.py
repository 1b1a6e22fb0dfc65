"""Which of a port's flows is slowed down first: policies, each a rank of a flow by its own values. Pure.

A policy is a function of the settings (``PolicyOptions``) that gives a rank: a function of a ``Flow`` that
gives a tuple, least first, or None for a flow that is never slowed. A rank may not depend on the time that
passes, for the index keeps flows in its order: an age is ranked by the time of the flow's opening.
One's own is named in ``[sdtcp] policy``, as ``module:function`` or by its entry point in the group
``weir.sdtcp_policies``.

Idle flows come last in all but the paper's policy: slowing one that sends nothing helps nobody. So do
flows whose window scale nobody knows (seen only in their middle): a switch leaves their ACKs alone, unless
it is told a scale to assume.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Any, TypeAlias

from flowdb.flow import NS_PER_S, FiveTuple, Flow, FlowState
from flowdb.index import Rank, by_age, by_age_active_first

ENTRY_POINTS = "weir.sdtcp_policies"
_BYTES_PER_MB, _BPS_PER_MBPS = 10**6, 10**6


@dataclass(frozen=True, slots=True)
class Rule:
    """Flows whose data goes from ``src`` and ``src_port`` to ``dst`` and ``dst_port``; None: any.

    ``score``: what ``priority`` adds for them.
    """

    src: IPv4Network | IPv6Network | None = None
    dst: IPv4Network | IPv6Network | None = None
    src_port: int | None = None
    dst_port: int | None = None
    score: float = 0.0

    def fits(self, key: FiveTuple) -> bool:
        return (
            (self.src_port is None or self.src_port == key.src_port)
            and (self.dst_port is None or self.dst_port == key.dst_port)
            and (self.src is None or ip_address(key.src) in self.src)
            and (self.dst is None or ip_address(key.dst) in self.dst)
        )


@dataclass(frozen=True, slots=True)
class PolicyOptions:
    """What policies may ask of the configuration: ``priority``'s weights and rules."""

    per_s: float = 1.0
    per_mb: float = 0.0
    per_mbps: float = 0.0
    rules: tuple[Rule, ...] = ()


Policy: TypeAlias = Callable[[PolicyOptions], Rank]


def longest_lived(_options: PolicyOptions) -> Rank:
    """The paper's (section III.C)."""
    return by_age


def longest_lived_active(_options: PolicyOptions) -> Rank:
    """The longest-lived of those that send."""
    return by_age_active_first


def largest_volume(_options: PolicyOptions) -> Rank:
    """The one that has sent most."""
    return lambda flow: (_idle(flow), -flow.sent_bytes, flow.opened_ns)


def highest_rate(_options: PolicyOptions) -> Rank:
    """The one that has sent fastest of late."""
    return lambda flow: (_idle(flow), -flow.rate_bps, flow.opened_ns)


def priority(options: PolicyOptions) -> Rank:
    """The highest score: so much a second of age, a MB sent, a Mbit/s of rate, and the fitting rules' own."""

    def rank(flow: Flow) -> tuple[bool, float, int]:
        return _idle(flow), -score(options, flow, 0), flow.opened_ns

    return rank


def score(options: PolicyOptions, flow: Flow, now_ns: int) -> float:
    """``priority``'s score of a flow at a time; between flows it differs by the same at all times."""
    return (
        options.per_s * ((now_ns - flow.opened_ns) / NS_PER_S)
        + options.per_mb * (flow.sent_bytes / _BYTES_PER_MB)
        + options.per_mbps * (flow.rate_bps / _BPS_PER_MBPS)
        + sum(rule.score for rule in options.rules if rule.fits(flow.key))
    )


POLICIES: dict[str, Policy] = {
    "longest-lived": longest_lived,
    "longest-lived-active": longest_lived_active,
    "largest-volume": largest_volume,
    "highest-rate": highest_rate,
    "priority": priority,
}


def sparing(rank: Rank, rules: tuple[Rule, ...], keys: Container[FiveTuple]) -> Rank:
    """``rank`` without the flows that are protected, by ``rules`` or by their key, both directions."""

    def spared(flow: Flow) -> tuple[Any, ...] | None:
        key = flow.key
        if key in keys or key.reverse in keys:
            return None
        if any(rule.fits(key) or rule.fits(key.reverse) for rule in rules):
            return None
        ranked = rank(flow)
        return None if ranked is None else (flow.receiver_wscale is None, *ranked)

    return spared


def _idle(flow: Flow) -> bool:
    return flow.state is not FlowState.ACTIVE
