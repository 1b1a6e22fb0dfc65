"""Several roots in racks: their places, the ports that their responses pass, and their figures."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mininet_topos.cli import lab
from mininet_topos.errors import BadExperiment
from mininet_topos.experiments.catalogue import entries
from mininet_topos.experiments.experiment import Case, Experiment
from mininet_topos.network.layers import layer_of_switches
from mininet_topos.network.racks import Incast, place, ports_down, responses_by_port
from mininet_topos.records.raw_records import querying_ns
from mininet_topos.results.racks import layer_figures, response_flows
from mininet_topos.topo import Clos, Dumbbell, FatTree, LeafSpine, Star, ThreeTier
from tests.support.lab.examples import one_case
from tests.support.lab.result_folders import leave_out_the_plots, write_run

TREE = ThreeTier(2, 5, 5)
NEAR = (12, 9, 2)


def seeded() -> random.Random:
    return random.Random(1)


@pytest.mark.parametrize(
    ("topo", "layers"),
    [
        (Star(3), {"edge": 1}),
        (Dumbbell(2, 2), {"edge": 2}),
        (LeafSpine(2, 4, 1), {"core": 2, "edge": 4}),
        (TREE, {"core": 1, "aggregation": 2, "edge": 10}),
        (FatTree(4), {"core": 4, "aggregation": 8, "edge": 8}),
        (Clos(4, 2), {"core": 2, "aggregation": 4, "edge": 4}),
    ],
)
def test_a_switch_belongs_to_the_layer_of_its_distance_from_hosts(topo: Any, layers: dict[str, int]) -> None:
    assert Counter(layer_of_switches(topo).values()) == layers


def test_roots_are_spread_evenly_over_the_first_racks() -> None:
    incasts = place(TREE, 12, 5, NEAR, seeded())
    racks = Counter((int(incast.root[1:]) - 1) // 5 + 1 for incast in incasts)
    assert racks == {1: 3, 2: 3, 3: 2, 4: 2, 5: 2}
    assert len({incast.root for incast in incasts}) == 12


def test_workers_are_at_the_wanted_distances_and_share_hosts_evenly() -> None:
    (incast,) = place(TREE, 1, 1, NEAR, seeded())
    assert incast.root == "h1"
    place_of = [(int(name[1:]) - 1) // 5 + 1 for name in incast.workers]
    assert sum(rack == 1 for rack in place_of) == 12
    assert sum(2 <= rack <= 5 for rack in place_of) == 9
    assert sum(rack > 5 for rack in place_of) == 2
    in_rack = Counter(name for name, rack in zip(incast.workers, place_of, strict=True) if rack == 1)
    assert in_rack == dict.fromkeys(("h2", "h3", "h4", "h5"), 3)


def test_a_seed_gives_one_placement() -> None:
    assert place(TREE, 5, 5, NEAR, seeded()) == place(TREE, 5, 5, NEAR, seeded())
    assert place(TREE, 5, 5, NEAR, seeded()) != place(TREE, 5, 5, NEAR, random.Random(2))


@pytest.mark.parametrize(
    ("topo", "roots", "racks", "near", "message"),
    [
        (FatTree(4), 1, 1, (1,), "one path between two hosts: use threetier"),
        (TREE, 26, 5, NEAR, "26 roots in 5 racks: the topology has 25 hosts in its first 5 racks"),
        (TREE, 2, 11, NEAR, "its first 10 racks"),
        (ThreeTier(1, 2, 2), 1, 1, (1, 1, 1), "no host is 6 links from h1"),
    ],
)
def test_a_place_that_does_not_exist_is_refused(
    topo: Any, roots: int, racks: int, near: tuple[int, ...], message: str
) -> None:
    with pytest.raises(BadExperiment, match=message):
        place(topo, roots, racks, near, seeded())


def test_responses_are_counted_at_each_port_on_their_way() -> None:
    incasts = [Incast("h1", ("h2", "h6", "h26", "h26"))]
    passed = {(port.switch, port.towards): count for port, count in responses_by_port(TREE, incasts).items()}
    assert passed == {
        ("tor1", "h1"): 4,
        ("tor2", "agg1"): 1,
        ("agg1", "tor1"): 3,
        ("tor6", "agg2"): 2,
        ("agg2", "core"): 2,
        ("core", "agg1"): 2,
    }
    down = {layer: [port.switch for port in ports] for layer, ports in ports_down(TREE, incasts).items()}
    assert down == {"edge": ["tor1"], "aggregation": ["agg1"], "core": ["core"]}


def test_the_ideal_time_is_that_of_the_busiest_port() -> None:
    """20,000 bytes are 14 segments: 20,924 bytes, 16.74 ms at 10 Mbit/s. A root's port passes 23 of them."""
    experiment = entries()["sccp-roots"].experiment
    ideal = {case.name: experiment.ideal_ms(case) for case in experiment.cases}
    one_ms = 20_924 * 8 / 10_000
    assert ideal["roots-5"] == pytest.approx(23 * one_ms)
    assert ideal["roots-20"] == pytest.approx(4 * 11 * one_ms), "the port from agg1 to a rack"


def test_queue_limits_are_those_of_the_layers() -> None:
    layout = entries()["sccp-roots"].experiment.layout
    limits = {port.switch[:3]: shape.queue_bytes for port, shape in layout.shapes.items()}
    assert limits == {"cor": 200_000, "agg": 150_000, "tor": 64_000}
    assert len(layout.shapes) == 2 * 12 + 50


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"roots": 0}, "roots is 0; want 1 or more"),
        ({"roots": 2}, "several roots or racks need workers_at"),
        (
            {"workers_at": (3, 1)},
            r"workers_at is \[3, 1\]; want at most 3 numbers whose sum is workers \(5\)",
        ),
        ({"workers_at": (2, 1, 1, 1)}, "want at most 3 numbers"),
        ({"workers_at": (6, -1)}, "want numbers of workers"),
        ({"workers_at": (5,), "background": 1}, "workers_at needs queries, without background or flows"),
        ({"workers_at": (5,), "roots": 26, "racks": 5}, "case a: 26 roots in 5 racks"),
    ],
)
def test_bad_racks_are_refused(changes: dict[str, Any], message: str) -> None:
    case = {"name": "a", "title": "a", "workers": 5, "size_bytes": 10_000, "queries": 1} | changes
    with pytest.raises(BadExperiment, match=message):
        one_case(cases=(Case(**case),), topology="threetier,2,5,5")


@pytest.mark.parametrize("scheme", ["ap-reno", "reno+dctcp"])
def test_a_scheme_whose_hosts_are_prepared_for_one_root_is_refused(scheme: str) -> None:
    case = Case("a", "a", workers=5, queries=1, workers_at=(5,))
    with pytest.raises(BadExperiment, match=f"hosts of {re.escape(scheme)} are prepared for one: leave"):
        one_case(cases=(case,), topology="threetier,2,5,5", schemes=("plain", scheme))


@pytest.mark.parametrize("layer", ["edge", "aggregation", "cores"])
def test_a_queue_limit_of_no_other_layer_is_refused(layer: str) -> None:
    with pytest.raises(BadExperiment, match=f"has the layer '{layer}'; leafspine,2,4,2 has core beside"):
        one_case(topology="leafspine,2,4,2", queues_bytes={layer: 100_000})
    with pytest.raises(BadExperiment, match=r"queues_bytes\.core is 1; want 3028 or more"):
        one_case(topology="leafspine,2,4,2", queues_bytes={"core": 1})


def test_racks_read_back_from_json() -> None:
    experiment = entries()["sccp-roots"].experiment
    assert Experiment.from_json(experiment.to_json()) == experiment


QUERIES = [
    {"event": "query", "host": host, "start_ns": start_ns, "qct_ms": qct_ms}
    for host, start_ns, qct_ms in [("h1", 0, 2.0), ("h6", 1_000_000, 3.0), ("h1", 10_000_000, 1.0)]
]


def test_overlapping_queries_count_once() -> None:
    assert querying_ns(QUERIES) == 4_000_000 + 1_000_000
    assert querying_ns([]) == 0


def test_the_mean_queue_is_that_while_queries_are_under_way() -> None:
    ports = [
        {"port": name, "limit_bytes": 1000, "byte_ns": byte_ns, "bytes_max": most}
        for name, byte_ns, most in [("a", 5_000_000 * 100, 500), ("b", 5_000_000 * 300, 900)]
    ]
    found = layer_figures({"layers": {"edge": ports}}, QUERIES)
    assert found == {"edge": {"ports": 2, "mean": 0.2, "busiest": 0.3, "max": 0.9}}
    assert layer_figures({"layers": {"edge": ports}}, []) == {}
    assert layer_figures({}, QUERIES) == {}, "a run of an older version"


def test_a_report_shows_the_queues_by_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The four queries of a run take 60, 61, 62 and 63 ms."""
    case = Case("A", "5 workers", workers=5, queries=4, workers_at=(5,))
    experiment = one_case(cases=(case,), topology="threetier,2,5,5")
    metadata = {"experiment": experiment.to_json(), "git": {"commit": "abc", "changed": []}, "sysctl": {}}
    (tmp_path / "metadata.json").write_text(json.dumps(metadata))
    write_run(tmp_path, "A", "plain", 1, True, False)
    path = tmp_path / "raw" / "A-plain-1" / "run.json"
    port = {"port": "s1-eth1", "limit_bytes": 1000, "byte_ns": 246_000_000 * 100, "bytes_max": 900}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"layers": {"edge": [port]}}))
    leave_out_the_plots(monkeypatch)
    result = CliRunner().invoke(lab, ["report", str(tmp_path), "--json"])
    (row,) = json.loads(result.stdout)
    assert row["layers"] == {"edge": {"ports": 1, "mean": 0.1, "busiest": 0.1, "max": 0.9}}
    assert row["qct_mean_ms"] == pytest.approx(61.5)
    page = (tmp_path / "report.html").read_text()
    assert "10.0, 10.0, 90.0" in page
    assert "0 of 0" in page, "flows that sent again"


def test_flows_that_sent_a_segment_again_are_counted() -> None:
    ended = [
        {"event": "closed", "host": "h2", "peer": "10.0.0.1", "total_retrans": count} for count in (0, 2, 1)
    ]
    planned = {"event": "closed", "host": "h2", "peer": "10.0.0.1", "flow": 0, "total_retrans": 4}
    assert response_flows([*ended, planned, *QUERIES]) == {"response_flows": 3, "lossy_flows": 2}
