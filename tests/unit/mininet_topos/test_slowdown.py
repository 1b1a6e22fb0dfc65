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
    ("more", "to_root", "to_others"),
    [
        ({"rates_mbps": {"access": 200}}, 1.21, 0.6),
        ({}, 1.21, None),
        ({"rates_mbps": {"access": 200}, "delay_ms": 10}, 41.21, 40.6),
        ({"topology": "dumbbell"}, 1.21, 1.21),
    ],
)
def test_a_flow_alone_takes_its_bytes_at_the_narrowest_port_and_two_round_trips(
    more: dict[str, object], to_root: float, to_others: float | None
) -> None:
    values = {
        "name": "e",
        "cases": (Case("a", "a", queries=1),),
        "schemes": ("plain",),
        "bandwidth_mbps": 100,
    }
    experiment = Experiment(**values | {"queue_bytes": 150_000} | more)  # type: ignore[arg-type]
    ten_segments = 14_480
    found = [experiment.flow_ideal_ms(ten_segments, root) for root in (True, False)]
    assert found == [pytest.approx(to_root, abs=0.01), to_others and pytest.approx(to_others, abs=0.01)]
