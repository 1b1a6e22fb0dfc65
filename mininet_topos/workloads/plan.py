"""Workloads, and their plans: the start, source, destination and size of each flow.

Pure: a plan depends on the workload, the hosts and the seed only.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from mininet_topos.errors import BadExperiment
from mininet_topos.workloads.flow import Flow, by_start
from mininet_topos.workloads.pairings import permutation, random_pair, shuffle
from mininet_topos.workloads.sizes import SizeDistribution

US_PER_S = 1_000_000


class Workload(Protocol):
    """A source of flows among given hosts, in any order."""

    def flows(self, hosts: Sequence[str], chance: random.Random) -> Iterator[Flow]: ...


def plan(workload: Workload, hosts: Sequence[str], seed: int) -> list[Flow]:
    """Return the flows of a workload among `hosts`, ordered by start. A seed always gives the same flows.

    Raises BadExperiment if a flow names another host, or if the workload makes no sense.
    """
    chance = random.Random(f"{seed} {type(workload).__name__}")  # noqa: S311 - traffic, not secrets
    flows = list(workload.flows(hosts, chance))
    unknown = {end for flow in flows for end in (flow.src, flow.dst)} - set(hosts)
    if unknown:
        raise BadExperiment(f"no such host: {', '.join(sorted(unknown))}; use {', '.join(hosts)}")
    return sorted(flows, key=by_start)


@dataclass(frozen=True, slots=True)
class RandomFlows:
    """Flows between random hosts that start as a Poisson process.

    ``load``: the mean share of ``link_bps`` that the payload uses on each host's link in each direction.
    ``duration_us``: all flows start within this time.
    """

    sizes: SizeDistribution
    load: float
    link_bps: int
    duration_us: int

    def flows(self, hosts: Sequence[str], chance: random.Random) -> Iterator[Flow]:
        if not 0 < self.load <= 1:
            raise BadExperiment(f"load is {self.load}; want more than 0 and at most 1")
        _positive(link_bps=self.link_bps, duration_us=self.duration_us)
        flows_a_s = self.load * self.link_bps * len(hosts) / (8 * self.sizes.mean_bytes)
        at_us = chance.expovariate(flows_a_s) * US_PER_S
        while at_us < self.duration_us:
            yield Flow(int(at_us), *random_pair(hosts, chance), self.sizes.sample(chance))
            at_us += chance.expovariate(flows_a_s) * US_PER_S


@dataclass(frozen=True, slots=True)
class PartitionAggregate:
    """Partition/aggregate queries: every ``gap_us``, workers respond to each root, all at once.

    The first ``roots`` hosts are roots. Each query chooses ``workers`` of the other hosts at random. Each of
    them responds with ``size_bytes``, or with its part of ``total_bytes``; set one of the two.
    """

    workers: int
    queries: int
    gap_us: int
    size_bytes: int | None = None
    total_bytes: int | None = None
    roots: int = 1

    def flows(self, hosts: Sequence[str], chance: random.Random) -> Iterator[Flow]:
        _positive(workers=self.workers, queries=self.queries, gap_us=self.gap_us, roots=self.roots)
        asked, others = hosts[: self.roots], list(hosts[self.roots :])
        if len(others) < self.workers:
            raise BadExperiment(f"{len(hosts)} hosts; want {self.roots + self.workers} for roots and workers")
        for query in range(self.queries):
            for root in asked:
                chosen = chance.sample(others, self.workers)
                for worker, size_bytes in zip(chosen, self._sizes(), strict=True):
                    yield Flow(query * self.gap_us, worker, root, size_bytes)

    def _sizes(self) -> list[int]:
        if (self.size_bytes is None) == (self.total_bytes is None):
            raise BadExperiment(
                "an incast needs either size_bytes (per worker) or total_bytes (of all workers)"
            )
        if self.size_bytes is not None:
            return [self.size_bytes] * self.workers
        each, over = divmod(self.total_bytes or 0, self.workers)
        return [each + (place < over) for place in range(self.workers)]


@dataclass(frozen=True, slots=True)
class StaggeredFlows:
    """Flows to the first host, from the other hosts in turn; one starts every ``every_us``."""

    count: int
    every_us: int
    size_bytes: int

    def flows(self, hosts: Sequence[str], chance: random.Random) -> Iterator[Flow]:
        del chance
        _positive(count=self.count)
        sink, *sources = hosts
        if not sources:
            raise BadExperiment("staggered flows need a second host that sends: set workers to 1 or more")
        for number in range(self.count):
            yield Flow(number * self.every_us, sources[number % len(sources)], sink, self.size_bytes)


@dataclass(frozen=True, slots=True)
class Permutation:
    """Every host sends to one host and receives from one host; a new round starts every ``gap_us``."""

    size_bytes: int
    rounds: int = 1
    gap_us: int = 0

    def flows(self, hosts: Sequence[str], chance: random.Random) -> Iterator[Flow]:
        _positive(rounds=self.rounds)
        for number in range(self.rounds):
            for src, dst in permutation(hosts, chance):
                yield Flow(number * self.gap_us, src, dst, self.size_bytes)


@dataclass(frozen=True, slots=True)
class Shuffle:
    """The first ``mappers`` hosts send to all other hosts. None: every host sends to every other host.

    Each sender starts a flow every ``every_us``; 0: all at once. ``reducers``: each sends to only so many of
    them, chosen at random. So the thesis' patterns are one-to-several (1 mapper, some reducers), one-to-all
    (1 mapper) and all-to-all (neither).
    """

    size_bytes: int
    every_us: int = 0
    mappers: int | None = None
    reducers: int | None = None

    def flows(self, hosts: Sequence[str], chance: random.Random) -> Iterator[Flow]:
        count = len(hosts) if self.mappers is None else self.mappers
        reducers = hosts if self.mappers is None else hosts[count:]
        begun: dict[str, int] = {}
        for src, dst in shuffle(hosts[:count], reducers, chance, self.reducers):
            turn = begun.get(src, 0)
            begun[src] = turn + 1
            yield Flow(turn * self.every_us, src, dst, self.size_bytes)


@dataclass(frozen=True, slots=True)
class Replay:
    """The flows of a trace (trace.py), unchanged."""

    trace: tuple[Flow, ...]

    def flows(self, hosts: Sequence[str], chance: random.Random) -> Iterator[Flow]:
        del hosts, chance
        yield from self.trace


@dataclass(frozen=True, slots=True)
class WithDeadlines:
    """Another workload, with deadlines.

    ``mean_us`` is the deadline of each flow. With ``least_us``, deadlines are drawn from an exponential
    distribution that starts at ``least_us`` and has the mean ``mean_us``, as in the papers of D3 and D2TCP.
    Flows larger than ``most_bytes`` are background flows without a deadline.
    """

    workload: Workload
    mean_us: int
    least_us: int | None = None
    most_bytes: int | None = None

    def flows(self, hosts: Sequence[str], chance: random.Random) -> Iterator[Flow]:
        _positive(mean_us=self.mean_us)
        if self.least_us is not None and not 0 <= self.least_us < self.mean_us:
            raise BadExperiment(
                f"least_us is {self.least_us}; want 0 or more, and less than mean_us ({self.mean_us})"
            )
        for flow in self.workload.flows(hosts, chance):
            if self.most_bytes is not None and flow.size_bytes > self.most_bytes:
                yield flow
            else:
                yield replace(flow, deadline_us=self._deadline_us(chance))

    def _deadline_us(self, chance: random.Random) -> int:
        if self.least_us is None:
            return self.mean_us
        return max(round(self.least_us + chance.expovariate(1 / (self.mean_us - self.least_us))), 1)


def _positive(**counts: int) -> None:
    """Raise BadExperiment if a count is 0 or less."""
    for name, count in counts.items():
        if count < 1:
            raise BadExperiment(f"{name} is {count}; want 1 or more")
