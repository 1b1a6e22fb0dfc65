"""Whether the schemes of a comparison were disturbed alike.

Two groups of runs were disturbed unequally if Fisher's exact test says so of their disturbed queries, or if
the hypervisor took a larger part of the time of one of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from mininet_topos.results.statistics import fisher_p
from mininet_topos.results.summary import Row

SIGNIFICANT = 0.05
"""Of all pairs of schemes in one case together."""
MOST_APART = 0.02
"""The difference between the parts of the time that the hypervisor took."""


@dataclass(frozen=True, slots=True)
class Disturbance:
    """What disturbed some runs: number of queries, of which disturbed, and the hypervisor's part of the time.

    The part of the time is what the hypervisor states or, if that is more, what the stall watch saw on all
    CPUs at once.
    """

    queries: int
    disturbed: int
    taken: float

    def __str__(self) -> str:
        """Return both values in words."""
        queries = f"{self.disturbed} of {self.queries} queries, " if self.queries else ""
        return f"{queries}{self.taken:.1%} of the time"


def disturbance(rows: Sequence[Row]) -> Disturbance:
    """Return what disturbed the runs of some rows; rows that did not record it are left out."""
    known = [row for row in rows if row["exposure"]["span_s"]]
    span_s = sum(row["exposure"]["span_s"] for row in known)
    taken_s = sum(row["exposure"]["span_s"] * taken_by_hypervisor(row) for row in known)
    queries = sum(row["queries"] for row in known)
    disturbed = sum(len(row["disturbed"]) for row in known)
    return Disturbance(queries, disturbed, taken_s / span_s if span_s else 0.0)


def taken_by_hypervisor(row: Row) -> float:
    """Return the part of a run's time that the hypervisor took; 0 if the run did not record it."""
    return max(row["exposure"]["stolen"] or 0.0, row["exposure"]["all_stalled"] or 0.0)


def are_unequal(groups: Sequence[Disturbance]) -> bool:
    """Whether two of some groups of runs were disturbed unequally."""
    pairs = list(combinations(groups, 2))
    return any(
        abs(one.taken - other.taken) > MOST_APART
        or fisher_p(one.disturbed, one.queries, other.disturbed, other.queries) * len(pairs) < SIGNIFICANT
        for one, other in pairs
    )


def unequal(groups: Mapping[str, Mapping[str, Sequence[Row]]]) -> list[str]:
    """Return a sentence for each comparison whose groups of runs were disturbed unequally.

    `groups`: the rows of each group, by the names of comparison and group.
    """
    found = []
    for name, rows_of in groups.items():
        of_group = {group: disturbance(rows) for group, rows in rows_of.items()}
        if are_unequal(list(of_group.values())):
            each = "; ".join(f"{group}: {values}" for group, values in of_group.items())
            found.append(f"{name}: disturbed unequally by the machine ({each})")
    return found
