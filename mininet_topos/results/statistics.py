"""Statistics of repeated runs: bootstrap intervals of medians, and Fisher's exact test; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, exp, log, sqrt
from statistics import NormalDist

import numpy as np

LEAST_REPEATS = 6
"""An interval needs as many values: five pairs have the same order by chance once in 16 times."""
CONFIDENCE = 0.95
RESAMPLES = 10_000
SEED = 1
"""The same values always give the same interval."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A median and its confidence interval."""

    median: float
    low: float
    high: float

    def excludes(self, value: float) -> bool:
        """Whether a value lies outside the interval."""
        return value < self.low or value > self.high


def median_interval(values: Sequence[float]) -> Interval | None:
    """Return the median of values and its bootstrap interval; None with fewer than LEAST_REPEATS values.

    The interval is the expanded percentile interval (Hesterberg 2015, "What Teachers Should Know About the
    Bootstrap", section 5.2): percentiles alone are too narrow for few values.
    """
    if len(values) < LEAST_REPEATS:
        return None
    given = np.array(values, dtype=float)
    chosen = np.random.default_rng(SEED).integers(0, len(given), (RESAMPLES, len(given)))
    medians = np.median(given[chosen], axis=1)
    tail = _expanded_tail(len(given))
    low, high = np.quantile(medians, (tail, 1 - tail))
    return Interval(float(np.median(given)), float(low), float(high))


def ratio_interval(pairs: Sequence[tuple[float, float]]) -> Interval | None:
    """Return the median ratio of pairs (one, other) and its interval; None with too few pairs, or with a 0.

    The interval is that of the median logarithm, so that exchanging one and other gives its reciprocal.
    """
    if not all(one > 0 and other > 0 for one, other in pairs):
        return None
    found = median_interval([log(one / other) for one, other in pairs])
    return Interval(exp(found.median), exp(found.low), exp(found.high)) if found else None


def unpaired_ratio_interval(some: Sequence[float], others: Sequence[float]) -> Interval | None:
    """Return the ratio of the medians of two groups and its interval; None with too few values or a 0."""
    if min(*some, *others) <= 0:
        return None
    found = unpaired_difference_interval(list(map(log, some)), list(map(log, others)))
    return Interval(exp(found.median), exp(found.low), exp(found.high)) if found else None


def unpaired_difference_interval(some: Sequence[float], others: Sequence[float]) -> Interval | None:
    """Return the difference of the medians of two groups and its interval; None with too few values.

    The groups are resampled independently, because they were measured at different times.
    """
    least = min(len(some), len(others))
    if least < LEAST_REPEATS:
        return None
    groups = [np.array(group, dtype=float) for group in (some, others)]
    generator = np.random.default_rng(SEED)
    one, other = (
        np.median(group[generator.integers(0, len(group), (RESAMPLES, len(group)))], axis=1)
        for group in groups
    )
    tail = _expanded_tail(least)
    low, high = np.quantile(one - other, (tail, 1 - tail))
    return Interval(float(np.median(groups[0]) - np.median(groups[1])), float(low), float(high))


def fisher_p(some: int, of: int, others: int, of_others: int) -> float:
    """Return the two-sided p-value of Fisher's exact test: may two shares be equal?

    The shares are `some` out of `of`, and `others` out of `of_others`.
    """
    total = some + others

    def ways(first: int) -> int:
        return comb(of, first) * comb(of_others, total - first)

    every = [ways(first) for first in range(max(0, total - of_others), min(of, total) + 1)]
    return sum(count for count in every if count <= ways(some)) / sum(every)


def _expanded_tail(count: int) -> float:
    """Return the probability of each tail: that of a t interval with the bootstrap's smaller variance."""
    normal = NormalDist()
    z = normal.inv_cdf((1 + CONFIDENCE) / 2)
    return 1 - normal.cdf(_t_quantile(z, count - 1) * sqrt(count / (count - 1)))


def _t_quantile(z: float, freedom: int) -> float:
    """Return Student's quantile that corresponds to a normal one (Abramowitz and Stegun, 26.7.5)."""
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return float(z + sum(term / freedom**power for power, term in enumerate(terms, 1)))
