"""The series of flows from samples: rates, fairness, settled spans, missed deadlines."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mininet_topos.errors import BadExperiment
from mininet_topos.experiments.experiment import Case
from mininet_topos.records.raw_records import span_ns
from mininet_topos.records.validity import judge
from mininet_topos.results.series import fairness, flow_series, goodput_by_transport, settled_span_ns
from mininet_topos.results.summary import missed
from mininet_topos.results.table import FLOW_COLUMNS, QUERY_COLUMNS
from mininet_topos.workloads.plan import plan
from mininet_topos.workloads.spec import workload
from mininet_topos.workloads.trace import write_trace
from tests.support.lab.examples import one_case

TENTH_NS = 100_000_000
TRANSPORTS = {"long1": "reno", "long2": "dctcp"}
LONG = Case("L", "2 long flows", background=2, duration_s=2.0)


def samples(host: str, mbps: float, count: int = 20, flow: int = 0) -> list[dict[str, Any]]:
    """A flow at a constant rate, sampled each tenth of a second."""
    shared = {
        "host": host,
        "peer": "10.0.0.1",
        "flow": flow,
        "endless": True,
        "mss": 1448,
        "cwnd": 10,
        "rtt_us": 2500,
    }
    return [
        shared
        | {"event": "sample" if number else "connected", "t_ns": number * TENTH_NS}
        | {"bytes_acked": int(mbps * 1e6 / 8 * number / 10), "delivered_ce": number}
        for number in range(count)
    ]


def test_a_series_has_rates_windows_and_times_in_its_units() -> None:
    (flow,) = flow_series(samples("long1", 40), TRANSPORTS)
    assert (flow.host, flow.transport) == ("long1", "reno")
    assert flow.goodput_mbps[0] == 0
    assert flow.goodput_mbps[1:] == pytest.approx(40)
    assert set(flow.cwnd_bytes) == {14_480}
    assert set(flow.rtt_ms) == {2.5}
    assert flow.marked_pkts[-1] == 19
    assert flow.mean_mbps(0, 5e8) == pytest.approx(40)
    assert flow.mean_mbps(0, 3.8e9) == pytest.approx(20)  # it ended after half of that
    assert flow.mean_mbps(1e12, 2e12) == flow.mean_mbps(5, 5) == 0
    assert flow.mean_cwnd_kb(1e8, 9e8) == pytest.approx(14.48)
    assert flow.mean_cwnd_kb(1e12, 2e12) == 0


def test_a_transport_without_a_window_has_none_in_its_series() -> None:
    records = [{key: value for key, value in one.items() if key != "cwnd"} for one in samples("long1", 40)]
    (flow,) = flow_series(records, TRANSPORTS)
    assert math.isnan(flow.mean_cwnd_kb(1e8, 9e8))
    assert flow.mean_mbps(0, 5e8) == pytest.approx(40)


def test_goodput_is_summed_by_transport() -> None:
    records = samples("long1", 40) + samples("long2", 30) + samples("long2", 20, flow=1)
    flows = flow_series(records, TRANSPORTS)
    assert len(flows) == 3
    assert goodput_by_transport(flows, 0, 1.9e9) == pytest.approx({"reno": 40, "dctcp": 50})


def test_a_planned_flow_ends_with_its_last_byte() -> None:
    """Its last sample is older: all bytes divided by the time until the last flow ended are the plan's."""
    size, end_ns = 1_250_000, 250_000_000
    records = []
    for host, rate_mbps in (("long1", 40), ("long2", 10)):
        records += [one | {"endless": False} for one in samples(host, rate_mbps, count=3)]
        records.append({"event": "flow", "host": host, "flow": 0, "t_ns": end_ns, "bytes_acked": size})
    flows = flow_series(records, TRANSPORTS)
    assert [flow.mean_mbps(0, end_ns) for flow in flows] == pytest.approx([8e3 * size / end_ns] * 2)
    assert span_ns(records)[1] == end_ns
    assert fairness([flow.mean_mbps(0, end_ns) for flow in flows]) == 1


def test_bytes_behind_a_lost_segment_have_arrived() -> None:
    records = samples("long1", 40, count=5)
    stopped = records[2]["bytes_acked"]
    for number, record in enumerate(records[3:], 1):
        record |= {"bytes_acked": stopped, "sacked": number * 100, "mss": 1000}
    (flow,) = flow_series(records, TRANSPORTS)
    assert flow.acked_bytes[-1] == stopped + 200_000


@given(st.lists(st.floats(0.1, 1e3), min_size=1))
def test_fairness_is_jains_index(rates: list[float]) -> None:
    found = fairness(rates)
    assert found is not None
    assert 1 / len(rates) - 1e-3 <= found <= 1 + 1e-3


def test_fairness_of_equal_rates_is_one() -> None:
    assert fairness([5.0, 5.0, 5.0]) == 1
    assert fairness([6.0, 0.0]) == 0.5
    assert fairness([0.0]) is None


def test_the_span_is_that_of_the_queries_and_planned_flows_or_of_the_samples() -> None:
    sampled = samples("long1", 40)
    assert span_ns(sampled) == (TENTH_NS, 19 * TENTH_NS)
    assert settled_span_ns(sampled) == (5.5 * TENTH_NS, 19 * TENTH_NS)
    query = {"event": "query", "start_ns": 5, "qct_ms": 1.0}
    assert span_ns([*sampled, query]) == (5, 1_000_005)
    planned = [one | {"endless": False} for one in samples("worker1", 40, count=3)]
    ended = {"event": "flow", "host": "worker1", "flow": 0, "t_ns": 7 * TENTH_NS}
    assert span_ns([*sampled, *planned, ended, query]) == (5, 7 * TENTH_NS)
    assert span_ns([]) == (0, 0)


def record(**changes: Any) -> dict[str, Any]:
    counters = {"queue_drops": 0, "ovs_drops": 0, "ovs_receive_drops": 0}
    values = {"cpu": [], "busy_rate_bps": 100e6, "queue_max_bytes": 9_000, "counters": counters}
    return values | {"stalls": [], "watched_cpus": [0], "pinned": True, "planned_flows": 0} | changes


@pytest.mark.parametrize(
    ("changes", "case", "reason"),
    [
        ({}, LONG, None),
        ({"cpu": [{"t_ns": 1e9, "idle": 0.01}]}, LONG, "starved of CPU: 1% idle"),
        ({"stalls": [{"cpu": 0, "start_ns": 5e8, "ns": 2e8}]}, LONG, "stood still for 11% of the time"),
        ({"stalls": [{"cpu": 0, "start_ns": 5e8, "ns": 1e8}]}, LONG, None),
        ({"planned_flows": 3}, LONG, None),
        ({"planned_flows": 3}, Case("F", "", flows={"kind": "staggered"}), "0 of 3 planned flows"),
    ],
)
def test_a_run_without_queries_is_judged_by_its_samples(
    changes: dict[str, Any], case: Case, reason: str | None
) -> None:
    found = judge(record(**changes), samples("long1", 40), case, one_case())
    assert (found == []) if reason is None else (len(found) == 1 and reason in found[0])


def test_late_responses_and_flows_miss_their_deadline(tmp_path: Path) -> None:
    answers = [{"event": "query", "workers_ms": [10.0, 20.0, 30.0, 41.0]}]
    assert missed(tmp_path, answers, Case("A", "", deadline_ms=30.0, queries=1)) == 0.25
    assert missed(tmp_path, answers, Case("A", "", queries=1)) is None
    spec = {"kind": "staggered", "count": 4, "every_us": 0, "size_bytes": 9, "deadlines": {"mean_us": 5000}}
    write_trace(tmp_path / "plan.csv", plan(workload(spec), ["h0", "h1"], 1))
    took = [{"event": "flow", "flow": number, "fct_ms": ms} for number, ms in enumerate((4.0, 6.0, 5.0))]
    assert missed(tmp_path, took, Case("F", "", flows=spec)) == 0.5  # one late, one never


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("kind", ["random", "incast", "permutation", "shuffle", "staggered"])
def test_a_seed_gives_the_same_plan_byte_for_byte(kind: str, seed: int, tmp_path: Path) -> None:
    spec = {
        "random": {"sizes": "web-search", "most_bytes": 10**6, "load": 0.5}
        | {"link_bps": 10**8, "duration_us": 10**6},
        "incast": {"workers": 3, "queries": 5, "gap_us": 9, "total_bytes": 10**6, "roots": 2},
        "permutation": {"size_bytes": 10, "rounds": 3},
        "shuffle": {"size_bytes": 10, "every_us": 5},
        "staggered": {"count": 5, "every_us": 7, "size_bytes": 10},
    }[kind]
    case = Case("F", "", flows={"kind": kind, **json.loads(json.dumps(spec))})
    for name in ("one", "other"):
        write_trace(tmp_path / name, case.plan([f"h{n}" for n in range(8)], seed))
    asked = (tmp_path / "one").read_bytes()
    assert asked == (tmp_path / "other").read_bytes()
    assert asked.count(b"\n") > 3
    if kind in ("random", "incast", "permutation", "shuffle"):
        write_trace(tmp_path / "next", case.plan([f"h{n}" for n in range(8)], seed + 1))
        assert asked != (tmp_path / "next").read_bytes()


def test_a_trace_file_is_a_workload(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("start_us,src,dst,bytes\n5,h1,h0,100\n")
    case = Case("F", "", workers=2, flows={"kind": "replay", "trace": str(path)})
    (flow,) = case.plan(["h0", "h1"], 1)
    assert (flow.start_us, flow.src, flow.dst, flow.size_bytes) == (5, "h1", "h0", 100)
    with pytest.raises(BadExperiment, match="no such host: h0, h1; use root, worker1, worker2"):
        replace(one_case(), cases=(case,))
    path.write_text("start_us,src,dst,bytes\n5,worker1,root,100\n")
    found = replace(one_case(), cases=(case,))
    assert [(flow.src, flow.dst) for flow in found.plan(case)] == [("worker1", "root")]


@pytest.mark.parametrize(("share", "cell"), [(0.125, "12.5"), (0.0, "0.0"), (None, "-")])
def test_tables_show_missed_deadlines_in_percent(share: float | None, cell: str) -> None:
    for columns in (QUERY_COLUMNS, FLOW_COLUMNS):
        (missed_column,) = (column for column in columns if column.name == "missed")
        assert missed_column.cell({"missed": share}) == cell
