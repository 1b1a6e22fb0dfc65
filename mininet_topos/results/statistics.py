"""Statistics of the results; pure."""

from __future__ import annotations

from math import comb


def fisher_p(some: int, of: int, others: int, of_others: int) -> float:
    """Return the two-sided p-value of Fisher's exact test: may two shares be equal?

    The shares are `some` out of `of`, and `others` out of `of_others`.
    """
    total = some + others

    def ways(first: int) -> int:
        return comb(of, first) * comb(of_others, total - first)

    every = [ways(first) for first in range(max(0, total - of_others), min(of, total) + 1)]
    return sum(count for count in every if count <= ways(some)) / sum(every)
