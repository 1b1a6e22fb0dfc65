"""A workload from the plain values of a file, such as `{kind = "staggered", count = 3, ...}`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple
from pathlib import Path
from types import NoneType
from typing import Any

from mininet_topos.errors import BadExperiment
from mininet_topos.plain_values import from_plain
from mininet_topos.workloads.flow import Flow
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

KINDS: dict[str, type[Any]] = {
    "random": RandomFlows,
    "incast": PartitionAggregate,
    "staggered": StaggeredFlows,
    "permutation": Permutation,
    "shuffle": Shuffle,
    "replay": Replay,
}

FLOW_TYPES: tuple[type | tuple[type, ...], ...] = (int, str, str, int, (int, NoneType))
"""The types of Flow's values, in their order."""


def workload(spec: Mapping[str, Any]) -> Workload:
    """Return the workload that a table describes by its `kind` and the fields of that kind.

    `sizes` is a number of bytes or the name of a distribution, which `most_bytes` limits. `trace` is the path
    of a trace file, or a list with the values of each flow. `deadlines` is a table with the fields of
    WithDeadlines. Raises BadExperiment.
    """
    values = with_flows_of_trace(spec)
    named = values.pop("kind", "")
    kind = KINDS.get(named) if isinstance(named, str) else None
    if kind is None:
        raise BadExperiment(f"a workload's kind is {spec.get('kind')!r}; want one of {', '.join(KINDS)}")
    deadlines = values.pop("deadlines", None)
    if "sizes" in values:
        values["sizes"] = _sizes(values["sizes"], values.pop("most_bytes", None))
    if "trace" in values:
        if not isinstance(values["trace"], list):
            raise BadExperiment(f"trace is {values['trace']!r}; want the path of a file")
        values["trace"] = tuple(_flow(number, flow) for number, flow in enumerate(values["trace"], 1))
    where = f"workload {spec['kind']}"
    made: Workload = from_plain(kind, values, where)
    if deadlines is None:
        return made
    if not isinstance(deadlines, Mapping):
        raise BadExperiment(f"{where}: deadlines is {deadlines!r}; want a table")
    return from_plain(WithDeadlines, {"workload": made, **deadlines}, f"{where}, deadlines")


def with_flows_of_trace(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table whose `trace` has the flows instead of the path of their file. Raises BadExperiment.

    So an experiment is whole without the file, and it is another one if the file has changed.
    """
    values = dict(spec)
    if isinstance(values.get("trace"), str):
        values["trace"] = [list(astuple(flow)) for flow in read_trace(Path(values["trace"]))]
    return values


def _flow(number: int, values: object) -> Flow:
    if (
        not isinstance(values, list)
        or len(values) != len(FLOW_TYPES)
        or not all(map(isinstance, values, FLOW_TYPES))
    ):
        raise BadExperiment(
            f"flow {number} of the trace is {values!r}; want five values: start in us, source and "
            f"destination in quotes, bytes, deadline in us"
        )
    return Flow(*values)


def _sizes(wanted: object, most_bytes: object) -> SizeDistribution:
    if type(wanted) is int and wanted > 0:
        return fixed(wanted)
    if not isinstance(wanted, str) or wanted not in DISTRIBUTIONS:
        raise BadExperiment(f"sizes is {wanted!r}; want a number of bytes or {' or '.join(DISTRIBUTIONS)}")
    if most_bytes is None:
        return DISTRIBUTIONS[wanted]
    if type(most_bytes) is not int:
        raise BadExperiment(f"most_bytes is {most_bytes!r}; want a whole number")
    return DISTRIBUTIONS[wanted].capped(most_bytes)
