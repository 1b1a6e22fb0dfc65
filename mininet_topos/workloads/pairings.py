"""Pairs of source and destination."""

from __future__ import annotations

import random
from collections.abc import Sequence

from mininet_topos.errors import BadExperiment
from mininet_topos.workloads.flow import Pair


def random_pair(hosts: Sequence[str], chance: random.Random) -> Pair:
    """Return two different hosts; all pairs have the same probability."""
    src, dst = chance.sample(_two_or_more(hosts), 2)
    return src, dst


def permutation(hosts: Sequence[str], chance: random.Random) -> list[Pair]:
    """Return pairs in which each host sends once and receives once, never to itself.

    All such permutations have the same probability.
    """
    sources = list(_two_or_more(hosts))
    sinks = list(sources)
    while any(src == dst for src, dst in zip(sources, sinks, strict=True)):
        chance.shuffle(sinks)  # succeeds with a probability of about 1/e
    return list(zip(sources, sinks, strict=True))


def shuffle(
    mappers: Sequence[str], reducers: Sequence[str], chance: random.Random, each: int | None = None
) -> list[Pair]:
    """Return each pair of a mapper and another host that reduces; the mappers take turns.

    Each mapper has a random order of its reducers. `each`: it has only so many of them. Raises BadExperiment
    if there are fewer.
    """
    orders = []
    for mapper in mappers:
        order = [(mapper, reducer) for reducer in reducers if reducer != mapper]
        chance.shuffle(order)
        if each is not None and not 1 <= each <= len(order):
            raise BadExperiment(
                f"reducers is {each}; want 1 to {len(order)}, the hosts that {mapper} can reach"
            )
        orders.append(order[:each])
    if not any(orders):
        raise BadExperiment("a shuffle needs a mapper and another host that reduces: add hosts")
    longest = max(map(len, orders))
    return [order[turn] for turn in range(longest) for order in orders if turn < len(order)]


def _two_or_more(hosts: Sequence[str]) -> Sequence[str]:
    if len(set(hosts)) < 2 or len(set(hosts)) < len(hosts):
        raise BadExperiment(f"hosts: {len(hosts)}, different: {len(set(hosts))}; want two or more, each once")
    return hosts
