"""The lab's arithmetic: ideal time, percentiles, parsers, the judge of runs, what long flows did."""

from __future__ import annotations

import errno
import os
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mininet_topos import ovs_buffers
from mininet_topos.cli import Bytes
from mininet_topos.errors import BadExperiment, Unable
from mininet_topos.experiment import Case, Experiment, demo
from mininet_topos.fidelity import judge, standing_queries
from mininet_topos.lab import steps
from mininet_topos.measure import Snapshot, parse_proc_net
from mininet_topos.ovs_buffers import PacketSocket, parse_packet_sockets
from mininet_topos.probe import BUCKET_TYPE, QueueTrace
from mininet_topos.results.records import goodput_points
from mininet_topos.results.summary import background_figures, percentile
from mininet_topos.schemes import to_toml

CASE = Case("A", "2 workers", workers=2, size_bytes=32_000, background=0, queries=2)


def make(**changes: Any) -> Experiment:
    values: dict[str, Any] = {
        "name": "t",
        "cases": (CASE,),
        "schemes": ("plain",),
        "bandwidth_mbps": 100,
        "queue_bytes": 150_000,
    }
    return Experiment(**(values | changes))


def test_ideal_is_every_segment_with_its_headers_at_the_bottleneck_rate() -> None:
    # 32,000 bytes are 23 segments: (32,000 + 23 * 66) * 40 bytes at 100 Mbit/s
    ideal = {case.name: case.ideal_ms(100) for case in demo().cases}
    assert ideal["A"] == pytest.approx(107.2576)
    assert ideal["B"] == pytest.approx(53.6288)
    assert ideal["C"] == pytest.approx(50.2176)


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.1, 100))
def test_percentile_is_nearest_rank(values: list[float], percent: float) -> None:
    found = percentile(values, percent)
    assert found in values
    not_above = sum(value <= found for value in values)
    assert not_above >= len(values) * percent / 100 - 1e-6
    assert sum(value < found for value in values) < len(values) * percent / 100 + 1e-6


def test_percentiles_of_twenty() -> None:
    values = list(range(1, 21))
    assert [percentile(values, p) for p in (50, 95, 99, 100)] == [10, 19, 20, 20]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schemes": ("plain", "tcp")}, "schemes are some of plain, cubic, bbr, ecn, dctcp,"),
        ({"schemes": ()}, "not none"),
        ({"schemes": ("plain", "plain")}, "each once"),
        ({"bandwidth_mbps": 0}, "want 1 to 10000"),
        ({"queue_bytes": 1500}, "no two full segments"),
        ({"congestion_control": "reno; rm"}, "not a congestion control"),
        ({"cases": ()}, "needs a case"),
        ({"period_ms": -1}, "a period of -1: want 0 or more"),
        ({"cases": (Case("A", "", 2000, 1, 0, 1),)}, "more than the 1022 addresses"),
        ({"cases": (Case("A", "", 1, 0, 0, 1),)}, "a response of 0 bytes"),
        ({"cases": (Case("A", "", 1, 1, -1, 1),)}, "no negative number of long flows"),
        ({"cases": (Case("A", "", 1, 1, 0, 0),)}, "at least one query"),
        # each case has room, the network for both has not
        ({"cases": (Case("A", "", 1000, 1, 0, 1), Case("B", "", 1, 1, 1000, 1))}, "more than"),
    ],
)
def test_bad_experiment(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadExperiment, match=message):
        make(**changes)


@pytest.mark.parametrize(
    ("text", "number"), [("32000", 32_000), ("32KB", 32_000), ("1.5 mb", 1_500_000), ("7B", 7)]
)
def test_bytes_may_have_a_unit(text: str, number: int) -> None:
    assert Bytes().convert(text, None, None) == number


@pytest.mark.parametrize("text", ["", "KB", "-1", "32KiB", "1e3"])
def test_what_is_no_number_of_bytes(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"want bytes, e\.g\. 32000, 32KB"):
        Bytes().convert(text, None, None)


def test_fitted_cases_of_one_size_share_a_network() -> None:
    def case(name: str, workers: int, background: int = 0) -> Case:
        return Case(name, name, workers, 10_000, background, 5)

    cases = (case("a", 40), case("b", 10), case("c", 40), case("d", 40, 1))
    whole, fitted = make(cases=cases), make(cases=cases, fitted=True)
    assert whole.parts == (whole,)
    assert [[one.name for one in part.cases] for part in fitted.parts] == [["a", "c"], ["b"], ["d"]]
    assert [len(part.layout.topo.hosts()) for part in fitted.parts] == [41, 11, 42]
    assert len(whole.layout.topo.hosts()) == 42
    assert steps(whole) == 1 + len(whole.schemes) * (1 + 4)
    assert steps(fitted) == 1 + len(whole.schemes) * (3 + 4)


def test_experiment_survives_json() -> None:
    assert Experiment.from_json(demo().to_json()) == demo()
    with pytest.raises(BadExperiment, match="not an experiment"):
        Experiment.from_json({"cases": []})


_text = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]))


@given(
    st.dictionaries(
        st.from_regex(r"[a-z_]{1,9}", fullmatch=True), _text | st.integers(-9, 9**9) | st.booleans()
    )
)
def test_toml_reads_back(section: dict[str, Any]) -> None:
    assert tomllib.loads(to_toml({"sdtcp": section})) == {"sdtcp": section}


def test_proc_net_counters() -> None:
    text = "Tcp: RtoMin RetransSegs\nTcp: 200 7\nTcpExt: TCPTimeouts TCPLossProbes\nTcpExt: 3 4\n"
    assert parse_proc_net(text) == {"RtoMin": 200, "RetransSegs": 7, "TCPTimeouts": 3, "TCPLossProbes": 4}


SS = """\
Netid Recv-Q Send-Q Local Address:Port Peer Address:PortProcess
p_raw 0 0 *:s1-eth1 * users:(("ovs-vswitchd",pid=7,fd=42)) skmem:(r0,rb212992,t0,tb16777216,f0,w0,o176,bl0,d5)
p_raw 0 0 [0]:* * users:(("ovs-vswitchd",pid=7,fd=44))
\t skmem:(r0,rb212992,t0,tb212992,f0,w0,o0,bl0,d0)
p_raw 0 0 *:x1 * users:(("ovs-vswitchd",pid=77,fd=42)) skmem:(r0,rb1,t0,tb2,f0,w0,o176,bl0,d9)
"""


def test_packet_sockets_of_one_process() -> None:
    assert parse_packet_sockets(SS, 7) == [
        PacketSocket("s1-eth1", 16_777_216, 5),
        PacketSocket("*", 212_992, 0),
    ]


def _snapshot(queue_drops: int = 0, **tcp: int) -> Snapshot:
    return Snapshot({"OutSegs": 0, "InSegs": 0, "RetransSegs": 0} | tcp, queue_drops, 0, 0)


def test_a_sysctl_that_cannot_be_written_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sysctl = tmp_path / "core" / "rmem_default"
    monkeypatch.setattr(ovs_buffers, "_RECEIVE", sysctl)
    monkeypatch.setattr(ovs_buffers, "_name", lambda path: path.name)
    with pytest.raises(Unable, match=r"^rmem_default cannot be read \(No such file or directory\): run "):
        ovs_buffers.deep_receive_buffers().__enter__()
    sysctl.parent.mkdir()
    sysctl.write_text("212992\n")
    monkeypatch.setattr(Path, "write_text", refused)
    with pytest.raises(Unable, match=r"^rmem_default cannot be set to 4194304 \(Read-only file system\): "):
        ovs_buffers.deep_receive_buffers().__enter__()


def refused(path: Path, text: str) -> int:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))


def test_ovs_drops_are_what_no_host_and_no_queue_accounts_for() -> None:
    # Linux counts retransmissions apart from OutSegs: 100 + 30 left, 110 came, 12 met a full queue
    assert _snapshot(12, OutSegs=100, RetransSegs=30, InSegs=110).ovs_drops == 8
    assert _snapshot(0, OutSegs=100, InSegs=101).ovs_drops == 0


def _trace(**columns: list[int]) -> QueueTrace:
    buckets = np.zeros(len(columns["pkts_min"]), dtype=BUCKET_TYPE)
    for name, values in columns.items():
        buckets[name] = values
    trace = QueueTrace(0)
    trace.fill(buckets)
    return trace


def test_untouched_buckets_hold_what_was_left() -> None:
    trace = _trace(
        pkts_min=[0, 3, 0, 1], pkts_max=[0, 9, 0, 4], pkts_last=[0, 4, 0, 0], sent_total=[0, 50, 0, 80]
    )
    assert trace.pkts.tolist() == [0, 9, 4, 4]
    assert trace.pkts_min.tolist() == [0, 2, 4, 0]
    assert trace.sent_bytes.tolist() == [0, 0, 0, 30]


def test_busy_rate_counts_only_stretches_without_an_empty_queue() -> None:
    busy, idle = 30, 10
    trace = _trace(
        pkts_min=[2] * busy + [1] * idle,
        sent_total=[12_500 * (n + 1) for n in range(busy)] + [12_500 * busy] * idle,
    )
    assert trace.busy_rate_bps(20) == pytest.approx(100e6 * (busy - 1) / busy)
    assert trace.busy_rate_bps(least_ms=busy + 1) is None


def _record(**changes: Any) -> dict[str, Any]:
    counters = {"queue_drops": 0, "ovs_drops": 0, "ovs_receive_drops": 0} | changes.pop("counters", {})
    idle, stolen = changes.pop("idle", 0.5), changes.pop("stolen", 0.01)
    sample = {"t_ns": 1.5e9, "idle": idle, "stolen": stolen, "ovs": 0.5}
    values = {"cpu": [sample], "busy_rate_bps": 100e6, "queue_max_bytes": 149_000, "counters": counters}
    values["stalls"] = []
    return values | changes


def stall(start_ms: float, ms: float, cpu: int = 0) -> dict[str, Any]:
    return {"event": "stall", "cpu": cpu, "start_ns": start_ms * 1e6, "ns": ms * 1e6}


def query(number: int, waited_ms: float = 1.0) -> dict[str, Any]:
    return {
        "event": "query",
        "start_ns": 1e9 * number,
        "qct_ms": 100.0,
        "switch_waited_ms": waited_ms,
    }


QUERIES = [query(1), query(2)]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"idle": 0.01}, "starved of CPU: 1% idle"),
        ({"stolen": 0.08}, "the hypervisor took 8% of the CPUs' time"),
        ({"busy_rate_bps": 90e6}, "sent 90.0 Mbit/s, not 100"),
        ({"busy_rate_bps": None}, None),
        ({"counters": {"ovs_receive_drops": 3}}, "too slow to receive 3"),
        ({"counters": {"ovs_drops": 5}}, "lost 5 packets although the queue refused none"),
        ({"counters": {"ovs_drops": 5, "queue_drops": 2}}, None),
        ({"queue_max_bytes": 150_001}, "more than its limit"),
        ({"queue_max_bytes": 90_000, "counters": {"queue_drops": 1}}, "dropped at 90000 bytes"),
        ({"queue_max_bytes": 90_000}, None),
        ({"stalls": [stall(1000, 6)]}, None),
        ({"stalls": [stall(1000, 6), stall(2098, 8)]}, None),
        ({"stalls": [stall(1000, 6), stall(2000, 3), stall(2050, 3)]}, "during 2 of 2 queries"),
        ({"stalls": [stall(1000, 6), stall(2000, 3), stall(2050, 3, cpu=1)]}, None),
        ({"stalls": [stall(990, 16), stall(2094, 8)]}, "during 2 of 2 queries"),
    ],
)
def test_judge(changes: dict[str, Any], reason: str | None) -> None:
    found = judge(_record(**changes), QUERIES, CASE, make())
    assert (found == []) if reason is None else (len(found) == 1 and reason in found[0])


def test_a_query_during_which_the_switch_had_no_cpu_is_left_out() -> None:
    queries = [query(1), query(2, waited_ms=4.9), query(3, waited_ms=5.1), query(4)]
    assert standing_queries(queries, []) == [*queries[:2], queries[3]]
    assert judge(_record(), queries, replace(CASE, queries=4), make()) == []


def test_an_incomplete_run_is_void() -> None:
    assert judge(_record(), QUERIES[:1], CASE, make()) == ["1 of 2 queries were completed"]


def _goodput(rates_mbps: list[float]) -> list[dict[str, Any]]:
    """A record each 100 ms from t = 0, at these rates."""
    total, records = 0.0, [{"host": "root", "event": "goodput", "t_ns": 0, "bytes": 0}]
    for number, rate in enumerate(rates_mbps, 1):
        total += rate * 1e6 / 8 / 10
        records.append(
            {"host": "root", "event": "goodput", "t_ns": number * 100_000_000, "bytes": int(total)}
        )
    return records


def test_background_before_during_after_and_recovery() -> None:
    query = {"event": "query", "start_ns": 2_000_000_000, "qct_ms": 1000.0}
    records = [*_goodput([90] * 20 + [30] * 10 + [50] * 10 + [88] * 20), query]
    figures = background_figures(records, 0)
    assert figures["background_mbps"] == pytest.approx({"before": 90, "during": 30, "after": 88})
    in_periods = background_figures(records, 1500)["background_mbps"]
    assert in_periods == pytest.approx({"before": 90, "during": (30 * 2 + 50) / 3, "after": 88}, abs=0.01)
    assert figures["recovery_s"] == pytest.approx(1.3)  # three tenths of a second at 88 after one at 50


def test_background_that_does_not_recover() -> None:
    query = {"event": "query", "start_ns": 2_000_000_000, "qct_ms": 1000.0}
    figures = background_figures([*_goodput([90] * 20 + [30] * 40), query], 0)
    assert figures["recovery_s"] is None
    assert background_figures([query], 0) == {"background_mbps": None, "recovery_s": None}


def test_goodput_of_several_sinks_is_summed_while_all_tell_theirs() -> None:
    def told(host: str, points: list[tuple[int, int]]) -> list[dict[str, Any]]:
        return [{"event": "goodput", "host": host, "t_ns": t, "bytes": sent} for t, sent in points]

    one = told("rcv2", [(0, 0), (100, 10), (200, 20), (300, 30)])
    other = told("rcv3", [(50, 0), (150, 40), (250, 80)])
    assert goodput_points([*one, *other]) == [(100, 30), (200, 80)]
    assert goodput_points(one) == [(0, 0), (100, 10), (200, 20), (300, 30)]
    assert goodput_points([]) == []
