"""A workload from plain values, as a file has them: `{kind = "staggered", count = 3, ...}`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mininet_topos.errors import BadExperiment
from mininet_topos.workloads.plan import (
    PartitionAggregate,
    Permutation,
    RandomFlows,
    Replay,
    Shuffle,
    StaggeredFlows,
    WithDeadlines,
    Workload,
)
from mininet_topos.workloads.sizes import DISTRIBUTIONS, SizeDistribution, fixed
from mininet_topos.workloads.trace import read_trace

KINDS = {
    "random": RandomFlows,
    "incast": PartitionAggregate,
    "staggered": StaggeredFlows,
    "permutation": Permutation,
    "shuffle": Shuffle,
    "replay": Replay,
}


def workload(spec: Mapping[str, Any]) -> Workload:
    """The workload that a table describes: its `kind`, and the fields of that kind.

    `sizes` is a number of bytes or the name of a distribution, which `most_bytes` caps; `trace` is a file;
    `deadlines` is a table of WithDeadlines' fields. Raises BadExperiment.
    """
    values = dict(spec)
    kind = KINDS.get(values.pop("kind", ""))
    if kind is None:
        raise BadExperiment(f"a workload's kind is one of {', '.join(KINDS)}: not {spec.get('kind')!r}")
    deadlines = values.pop("deadlines", None)
    if "sizes" in values:
        values["sizes"] = _sizes(values["sizes"], values.pop("most_bytes", None))
    if "trace" in values:
        values["trace"] = tuple(read_trace(Path(values["trace"])))
    try:
        made: Workload = kind(**values)
        return WithDeadlines(made, **deadlines) if deadlines else made
    except TypeError as error:
        raise BadExperiment(f"workload {spec['kind']}: {str(error).partition(' ')[2]}") from None


def _sizes(wanted: object, most_bytes: int | None) -> SizeDistribution:
    if isinstance(wanted, int):
        return fixed(wanted)
    if wanted not in DISTRIBUTIONS:
        raise BadExperiment(f"sizes are a number of bytes or {' or '.join(DISTRIBUTIONS)}: not {wanted!r}")
    found = DISTRIBUTIONS[str(wanted)]
    return found.capped(most_bytes) if most_bytes else found
