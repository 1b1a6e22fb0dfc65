"""The description of an experiment: ideal time, checks, parts that share a network, JSON."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mininet_topos.errors import BadExperiment
from mininet_topos.experiments.experiment import (
    FULL_SEGMENT_BYTES,
    MOST_QUEUE_BYTES,
    MOST_WAIT_MS,
    Case,
    Experiment,
    demo,
)
from mininet_topos.network.ovs_buffers import SEND_BUFFER_BYTES
from mininet_topos.running.case_traffic import patience_s
from mininet_topos.running.experiment_runner import steps
from mininet_topos.workloads.flow import Flow
from tests.support.lab.examples import CASE, one_case


def test_the_ideal_time_counts_every_segment_with_its_headers() -> None:
    # 32,000 bytes are 23 segments: (32,000 + 23 * 66) * 40 bytes at 100 Mbit/s
    ideal = {case.name: case.ideal_ms(100) for case in demo().cases}
    assert ideal["A"] == pytest.approx(107.2576)
    assert ideal["B"] == pytest.approx(53.6288)
    assert ideal["C"] == pytest.approx(50.2176)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schemes": ("plain", "tcp")}, "no scheme is called 'tcp': use some of plain, cubic, bbr,"),
        ({"schemes": ()}, "schemes is empty: use some of plain,"),
        ({"schemes": ("plain", "plain")}, "names a scheme twice: plain, plain; name each once"),
        (
            {"schemes": ("ap-dctcp", "dctcp"), "cases": (CASE, replace(CASE, name="A-ap"))},
            "two runs would be called 'A-ap-dctcp'",
        ),
        ({"bandwidth_mbps": 0}, "want 1 to 10000"),
        ({"queue_bytes": 1500}, "queue_bytes is 1500; want 3028 or more, two full segments"),
        ({"congestion_control": "reno; rm"}, "congestion_control is 'reno; rm'; want a name such as"),
        ({"cases": ()}, "the list of cases is empty: add a case"),
        ({"period_ms": -1}, "period_ms is -1; want 0 or more"),
        *(
            ({key: 60_001}, f"{key} is 60001; want at most 60000")
            for key in ("gap_ms", "period_ms", "sample_ms")
        ),
        *(({key: math.inf}, f"{key} is inf; want at most 600") for key in ("warmup_s", "tail_s")),
        ({"queue_bytes": 10_000_001}, "want at most 10000000: Open vSwitch would drop packets before"),
        ({"cases": (Case("A", "", 2000, 1, 0, 1),)}, "more than the 1022 addresses"),
        ({"cases": (Case("A", "", 1, 0, 0, 1),)}, "case A: size_bytes is 0; want 1 to 67108864"),
        ({"cases": (Case("A", "", 1, 1, -1, 1),)}, "case A: background is -1; want 0 or more"),
        ({"cases": (Case("A", "", 1, 1, 0, 0),)}, "case A has no traffic: set queries, flows, or background"),
        # each case has room, the network for both has not
        ({"cases": (Case("A", "", 1000, 1, 0, 1), Case("B", "", 1, 1, 1000, 1))}, "more than"),
    ],
)
def test_a_bad_experiment_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadExperiment, match=message):
        one_case(**changes)


def test_the_largest_queue_fits_into_the_buffer_by_which_open_vswitch_sends() -> None:
    truesize = 2304  # what the kernel counts for a full packet
    assert MOST_QUEUE_BYTES / FULL_SEGMENT_BYTES * truesize < SEND_BUFFER_BYTES


@pytest.mark.parametrize("key", ["gap_ms", "period_ms"])
def test_a_pause_between_two_queries_is_not_taken_for_a_query_that_does_not_end(key: str) -> None:
    """The root waits for a query 30 s, and then it fails."""
    experiment = one_case(**{key: MOST_WAIT_MS}, delay_ms=15)
    assert patience_s(experiment, CASE) > MOST_WAIT_MS / 1000 + 30 + CASE.workers * 0.03
    assert patience_s(one_case(), CASE) < 36


def test_fitted_cases_of_one_size_share_a_network() -> None:
    def case(name: str, workers: int, background: int = 0) -> Case:
        return Case(name, name, workers, 10_000, background, 5)

    cases = (case("a", 40), case("b", 10), case("c", 40), case("d", 40, 1))
    whole, fitted = one_case(cases=cases), one_case(cases=cases, fitted=True)
    assert whole.parts_by_network == (whole,)
    assert [[one.name for one in part.cases] for part in fitted.parts_by_network] == [
        ["a", "c"],
        ["b"],
        ["d"],
    ]
    assert [len(part.layout.topo.hosts()) for part in fitted.parts_by_network] == [41, 11, 42]
    assert len(whole.layout.topo.hosts()) == 42
    assert steps(whole) == 1 + len(whole.schemes) * (1 + 4)
    assert steps(fitted) == 1 + len(whole.schemes) * (3 + 4)


def test_an_experiment_reads_back_from_json() -> None:
    assert Experiment.from_json(demo().to_json()) == demo()
    with pytest.raises(BadExperiment, match="the experiment: the key 'name' is missing; add it"):
        Experiment.from_json({"cases": []})


def test_the_flows_of_a_trace_are_part_of_the_experiment(tmp_path: Path) -> None:
    """It can be read without the file, and is another experiment if the file has changed."""
    path = tmp_path / "trace.csv"
    path.write_text("start_us,src,dst,bytes,deadline_us\n5,worker1,root,100,\n2,root,worker1,7,900\n")
    values = one_case().to_json()
    values["cases"] = [
        {"name": "A", "title": "a trace", "flows": {"kind": "replay", "trace": str(path)}},
    ]
    experiment = Experiment.from_json(values)
    stored = json.loads(json.dumps(experiment.to_json()))
    path.write_text("start_us,src,dst,bytes\n5,worker1,root,101\n")
    assert Experiment.from_json(values) != experiment
    path.unlink()
    assert Experiment.from_json(stored) == experiment
    wanted = [Flow(2, "root", "worker1", 7, 900), Flow(5, "worker1", "root", 100)]
    assert experiment.plan(experiment.cases[0]) == wanted
    stored["cases"][0]["flows"]["trace"][0].pop()
    with pytest.raises(BadExperiment, match=r"flow 1 of the trace is .*; want five values"):
        Experiment.from_json(stored)
