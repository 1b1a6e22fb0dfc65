"""The slowdown of planned flows by their size."""

from __future__ import annotations

import math

import pytest

from mininet_topos.experiments.experiment import Case, Experiment
from mininet_topos.results.slowdown import CLASSES, LABELS, slowdowns
from mininet_topos.results.summary import percentile
from mininet_topos.workloads.flow import Flow

SIZES = (1_000, 10_000, 10_001, 100_000, 2_000_000)
PLAN = [Flow(at, "h2", "h1", size) for at, size in enumerate(SIZES)]


def ideal_ms(flow: Flow) -> float:
    return flow.size_bytes / 1000


def test_each_class_has_the_slowdown_of_its_flows() -> None:
    took = {at: (2 + at) * ideal_ms(flow) for at, flow in enumerate(PLAN)}
    found = slowdowns(PLAN, took, ideal_ms, percentile)
    assert found["all"] == {"flows": 5, "done": 5, "p50": 4, "p99": 6}
    assert found["to_10kb"] == {"flows": 2, "done": 2, "p50": 2, "p99": 3}
    assert found["to_100kb"] == {"flows": 2, "done": 2, "p50": 4, "p99": 5}
    assert found["over_1mb"] == {"flows": 1, "done": 1, "p50": 6, "p99": 6}
    assert "to_1mb" not in found


def test_a_flow_that_has_not_ended_counts_as_infinitely_slow() -> None:
    found = slowdowns(PLAN, {0: 1.0, 1: 10.0, 2: 10.001, 3: 100.0}, ideal_ms, percentile)
    assert found["all"] == {"flows": 5, "done": 4, "p50": 1, "p99": None}
    assert found["over_1mb"] == {"flows": 1, "done": 0, "p50": None, "p99": None}


def test_without_an_ideal_time_or_a_plan_there_is_no_slowdown() -> None:
    assert slowdowns([], {}, ideal_ms, percentile) == {}
    assert slowdowns(PLAN, {}, lambda flow: None, percentile) == {}


def test_classes_follow_one_another_and_have_labels() -> None:
    bounds = [bound for name, bound in CLASSES.items() if name != "all"]
    assert [most for _, most in bounds[:-1]] == [above for above, _ in bounds[1:]]
    assert (bounds[0][0], bounds[-1][1]) == CLASSES["all"] == (0, math.inf)
    assert list(LABELS) == list(CLASSES)


@pytest.mark.parametrize(
    ("more", "ideals_ms"),
    [
        ({"rates_mbps": {"access": 200}}, (1.21, 0.6)),
        ({}, (1.21, None)),
        ({"rates_mbps": {"access": 200}, "delay_ms": 10}, (41.21, 40.6)),
        ({"topology": "dumbbell"}, (1.21, None)),  # the worker's port has no rate
        ({"topology": "dumbbell", "rates_mbps": {"access": 200}}, (1.21, 0.6)),
        ({"topology": "dumbbell", "rates_mbps": {"root": 200}}, (1.21, None)),
    ],
)
def test_a_flow_alone_takes_its_bytes_at_the_narrowest_port_on_its_way_and_two_round_trips(
    more: dict[str, object], ideals_ms: tuple[float | None, ...]
) -> None:
    values = {
        "name": "e",
        "cases": (Case("a", "a", workers=2, queries=1),),
        "schemes": ("plain",),
        "bandwidth_mbps": 100,
    }
    experiment = Experiment(**values | {"queue_bytes": 150_000} | more)  # type: ignore[arg-type]
    ten_segments = 14_480
    ideal_ms, (one, other) = experiment.ideal_of_flows(), experiment.layout.workers[:2]
    found = [ideal_ms(Flow(0, one, dst, ten_segments)) for dst in (experiment.layout.root, other)]
    assert found == [ideal and pytest.approx(ideal, abs=0.01) for ideal in ideals_ms]


def test_the_trunk_limits_only_flows_that_cross_it() -> None:
    """Two racks with a narrow trunk: a flow inside a rack has the rate of its receiver's port."""
    experiment = Experiment(
        name="e",
        cases=(Case("a", "a", workers=3, queries=1),),
        schemes=("plain",),
        bandwidth_mbps=10,
        queue_bytes=150_000,
        topology="leafspine,1,2,2",
        rates_mbps={"trunk": 20, "access": 100},
    )
    layout, ideal_ms = experiment.layout, experiment.ideal_of_flows()
    others = [host for host in layout.topo.hosts() if host != layout.root]
    pairs = [(one, other) for one in others for other in others if one != other]
    found = {
        layout.switch_of(one) == layout.switch_of(other): ideal_ms(Flow(0, one, other, 14_480))
        for one, other in pairs
    }
    assert found == {True: pytest.approx(1.21, abs=0.01), False: pytest.approx(6.06, abs=0.01)}
