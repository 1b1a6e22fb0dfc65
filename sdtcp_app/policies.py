"""Policies: the order in which the flows through a port are slowed down. Pure, except for finding policies.

A policy is a function. It takes the options of the configuration (``PolicyOptions``) and returns a rank. A
rank takes a ``Flow`` and returns a tuple: the flow with the least tuple is slowed first. None means that the
flow is never slowed. A rank may not depend on the current time, because the index keeps flows in its order:
it ranks by the time at which a flow opened instead of by its age.

Policies are found by the entry points of the group ``weir.sdtcp_policies``, of Weir and of other
packages. ``[sdtcp] policy`` names an entry point, or ``module:function``.

All policies except the paper's rank idle flows last, because slowing an idle flow does not shorten a queue.
Flows with an unknown window scale come last in every policy: the switch does not change their windows, unless
it is configured to assume a scale.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, TypeAlias

from app_base.flow_rules import FlowRule
from flowdb.flow import NS_PER_S, FiveTuple, Flow, FlowState
from flowdb.index import Rank, by_age, by_age_active_first

GROUP = "weir.sdtcp_policies"
_BYTES_PER_MB, _BPS_PER_MBPS = 10**6, 10**6


@dataclass(frozen=True, slots=True)
class Rule(FlowRule):
    """The policy ``priority`` adds ``score`` to the score of a flow that matches."""

    score: float = 0.0


@dataclass(frozen=True, slots=True)
class PolicyOptions:
    """The part of the configuration that policies get: the weights and rules of ``priority``."""

    per_s: float = 1.0
    per_mb: float = 0.0
    per_mbps: float = 0.0
    rules: tuple[Rule, ...] = ()


Policy: TypeAlias = Callable[[PolicyOptions], Rank]


def longest_lived(_options: PolicyOptions) -> Rank:
    """The policy of the paper (section III.C)."""
    return by_age


def longest_lived_active(_options: PolicyOptions) -> Rank:
    """The longest-lived active flow."""
    return by_age_active_first


def largest_volume(_options: PolicyOptions) -> Rank:
    """The flow that has sent most bytes."""
    return lambda flow: (_is_idle(flow), -flow.sent_bytes, flow.opened_ns)


def highest_rate(_options: PolicyOptions) -> Rank:
    """The flow with the highest recent rate."""
    return lambda flow: (_is_idle(flow), -flow.rate_bps, flow.opened_ns)


def priority(options: PolicyOptions) -> Rank:
    """The flow with the highest score, from its age, its volume, its rate and the rules that match it."""

    def rank(flow: Flow) -> tuple[bool, float, int]:
        return _is_idle(flow), -score(options, flow, 0), flow.opened_ns

    return rank


def score(options: PolicyOptions, flow: Flow, now_ns: int) -> float:
    """The score of a flow in ``priority``. The difference between two flows is the same at all times."""
    return (
        options.per_s * ((now_ns - flow.opened_ns) / NS_PER_S)
        + options.per_mb * (flow.sent_bytes / _BYTES_PER_MB)
        + options.per_mbps * (flow.rate_bps / _BPS_PER_MBPS)
        + sum(rule.score for rule in options.rules if rule.matches(flow.key))
    )


def policy_names() -> list[str]:
    """The names of the installed policies."""
    return sorted(entry_points(group=GROUP).names)


def load_policy(name: str) -> Policy:
    """A policy by the name of its entry point or as ``module:function``. Raises ValueError."""
    found: Policy
    try:
        for point in entry_points(group=GROUP, name=name):
            found = point.load()
            return found
        module, colon, attribute = name.partition(":")
        if colon:
            found = getattr(import_module(module), attribute)
            return found
    except Exception as error:  # the module of another package may fail in any way
        raise ValueError(f"policy {name!r} cannot be loaded: {error}") from error
    raise ValueError(f"unknown policy {name!r}; use one of {', '.join(policy_names())}, or module:function")


def sparing(rank: Rank, rules: tuple[FlowRule, ...], keys: Container[FiveTuple]) -> Rank:
    """``rank`` without protected flows: they match ``rules`` or are in ``keys``, in either direction."""

    def spared(flow: Flow) -> tuple[Any, ...] | None:
        key = flow.key
        if key in keys or key.reverse in keys:
            return None
        if any(rule.matches_either(key) for rule in rules):
            return None
        ranked = rank(flow)
        return None if ranked is None else (flow.receiver_wscale is None, *ranked)

    return spared


def _is_idle(flow: Flow) -> bool:
    return flow.state is not FlowState.ACTIVE
