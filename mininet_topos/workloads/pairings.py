"""Who sends to whom."""

from __future__ import annotations

import random
from collections.abc import Sequence

from mininet_topos.errors import BadExperiment
from mininet_topos.workloads.flow import Pair


def random_pair(hosts: Sequence[str], chance: random.Random) -> Pair:
    """Two different hosts, every pair as likely as another."""
    src, dst = chance.sample(_two_or_more(hosts), 2)
    return src, dst


def permutation(hosts: Sequence[str], chance: random.Random) -> list[Pair]:
    """Every host sends to one and receives from one, never itself; every such order is as likely."""
    sources = list(_two_or_more(hosts))
    sinks = list(sources)
    while any(src == dst for src, dst in zip(sources, sinks, strict=True)):
        chance.shuffle(sinks)  # one in e is without a fixed point
    return list(zip(sources, sinks, strict=True))


def shuffle(mappers: Sequence[str], reducers: Sequence[str], chance: random.Random) -> list[Pair]:
    """Every mapper sends to every reducer but itself, in an order of its own, the mappers in turn."""
    orders = []
    for mapper in mappers:
        order = [(mapper, reducer) for reducer in reducers if reducer != mapper]
        chance.shuffle(order)
        orders.append(order)
    if not any(orders):
        raise BadExperiment("a shuffle needs a mapper and another host that reduces")
    longest = max(map(len, orders))
    return [order[turn] for turn in range(longest) for order in orders if turn < len(order)]


def _two_or_more(hosts: Sequence[str]) -> Sequence[str]:
    if len(set(hosts)) < 2 or len(set(hosts)) < len(hosts):
        raise BadExperiment(f"{len(set(hosts))} different hosts of {len(hosts)}: want two or more, each once")
    return hosts
