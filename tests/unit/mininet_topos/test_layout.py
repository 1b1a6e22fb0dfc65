"""Who plays what on a topology, and which port is how wide."""

from __future__ import annotations

from typing import Any

import pytest

from mininet_topos.errors import BadExperiment
from mininet_topos.experiments.experiment import Case, Experiment
from mininet_topos.network import topologies
from mininet_topos.network.lab_network import bridge_names
from mininet_topos.network.layout import ACCESS, ROOT, TRUNK, Port, lay_out, star
from mininet_topos.network.shaping import Bottleneck

NARROW, WIDE = Bottleneck(100_000_000, queue_bytes=150_000), Bottleneck(10**9, queue_bytes=150_000)


def test_the_bottleneck_of_a_star_is_the_port_to_its_root() -> None:
    layout = star(3, 2, NARROW)
    assert layout.root == "root"
    assert layout.workers == ("worker1", "worker2", "worker3")
    assert layout.senders == ("long1", "long2")
    assert layout.sinks == ("root",)
    assert layout.shapes == {layout.bottleneck: NARROW}
    assert (layout.bottleneck.number, layout.bottleneck.towards) == (1, "root")


def test_a_dumbbell_is_shaped_between_its_switches_in_both_directions() -> None:
    layout = lay_out("dumbbell,40,3", 10, 10, {TRUNK: NARROW})
    assert layout.root == "rcv1"
    assert layout.workers == tuple(f"snd{number}" for number in range(1, 11))
    assert layout.senders == tuple(f"snd{number}" for number in range(11, 21))
    assert layout.sinks == ("rcv2", "rcv3")
    assert layout.bottleneck == layout.port("s1", "s2")
    assert set(layout.shapes) == {layout.port("s1", "s2"), layout.port("s2", "s1")}


@pytest.mark.parametrize(("senders", "sinks"), [(0, ("rcv1",)), (2, ("rcv2",))])
def test_a_dumbbell_without_parameters_has_the_needed_size(senders: int, sinks: tuple[str]) -> None:
    layout = lay_out("dumbbell", 5, senders, {})
    assert len(layout.topo.hosts()) == 5 + senders + 1 + bool(senders)
    assert layout.sinks == sinks


def test_a_dumbbell_of_two_links_is_shaped_on_both() -> None:
    layout = lay_out("dumbbell,4,1,2", 4, 0, {TRUNK: NARROW})
    assert [port.number for port in layout.shapes if port.switch == "s1"] == [1, 2]
    assert layout.bottleneck.number == 1


def test_the_switches_supply_the_workers_in_turn() -> None:
    layout = lay_out("threetier,2,1,3", 4, 1, {ROOT: NARROW, TRUNK: WIDE})
    assert layout.root == "h1"
    assert layout.workers == ("h2", "h4", "h3", "h5")
    assert layout.senders == ("h6",)
    assert layout.bottleneck == layout.port("tor1", "h1")
    roles = [shape is WIDE for shape in layout.shapes.values()]
    assert (roles.count(True), roles.count(False)) == (8, 1)
    assert layout.switch_of("h4") == "tor2"


@pytest.mark.parametrize(
    ("spec", "workers", "senders", "message"),
    [
        ("ring", 1, 0, "no topology is called 'ring'"),
        ("fattree,3", 1, 0, "want an even number"),
        ("fattree,4", 15, 1, "has 15 hosts beside .* 15 workers and 1 long flows"),
        ("star", 1022, 0, "1023 hosts are more than the 1022 addresses"),
        ("fattree,16", 1, 0, "1024 hosts are more than"),
    ],
)
def test_an_impossible_layout_is_refused(spec: str, workers: int, senders: int, message: str) -> None:
    with pytest.raises(BadExperiment, match=message):
        lay_out(spec, workers, senders, {})


@pytest.mark.parametrize("spec", ["dcell,2,1", "bcube,2,1"])
def test_a_forwarding_host_is_replaced_by_a_switch(spec: str) -> None:
    plain, layout = topologies.make(spec), lay_out(spec, 2, 1, {ROOT: NARROW})
    assert layout.topo.hosts(sort=False) == plain.hosts(sort=False)
    assert len(layout.topo.switches()) == len(plain.switches()) + len(plain.hosts())
    assert len(layout.topo.links()) == len(plain.links()) + len(plain.hosts())
    assert all(len(layout.topo.ports[host]) == 1 for host in layout.topo.hosts())
    assert layout.bottleneck == Port("h1f", 1, "h1")
    assert len({layout.topo.nodeInfo(switch)["dpid"] for switch in layout.topo.switches()}) == len(
        layout.topo.switches()
    )


def test_a_missing_port_is_refused() -> None:
    with pytest.raises(BadExperiment, match="no port of s1 leads to h9"):
        star(1, 0, NARROW).port("s1", "h9")


def test_bridges_are_named_for_the_lab_and_their_switch() -> None:
    assert bridge_names(star(1, 0, NARROW), "s3") == {"s1": "s3"}
    names = bridge_names(lay_out("fattree,4", 1, 0, {}), "s3")
    assert names["edge4_2"] == "s3-edge4_2"
    assert len(names) == 20


def test_too_long_an_interface_name_is_refused() -> None:
    layout = lay_out("threetier,11,1,10", 1, 0, {})
    assert bridge_names(layout, "s1")["agg11"] == "s1-agg11"
    with pytest.raises(BadExperiment, match=r"called s123-agg10-eth10, .* allows only 15"):
        bridge_names(lay_out("threetier,11,10,1", 1, 0, {}), "s123")


CASE = Case("A", "", workers=2, size_bytes=1000, background=0, queries=1)


def make(**changes: Any) -> Experiment:
    values: dict[str, Any] = {"bandwidth_mbps": 100, "queue_bytes": 150_000, "schemes": ("plain",)}
    return Experiment(name="t", cases=(CASE,), **(values | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"topology": "ring"}, "no topology is called"),
        ({"topology": "dumbbell,4,1,2"}, "2 links at its bottleneck; an incast needs one"),
        ({"rates_mbps": {"root": 1000}}, "rates_mbps has the role 'root'; want trunk or access"),
        ({"rates_mbps": {"trunk": 10}}, "rates_mbps.trunk is 10; want bandwidth_mbps \\(100\\) or more"),
        ({"rates_mbps": {"trunk": 1e9}}, "want 1 to 10000"),
        (
            {"topology": "dumbbell", "rates_mbps": {"trunk": 1000}},
            "has the role 'trunk'; want root or access",
        ),
        ({"fabric_mode": "active"}, "proactive or reactive"),
    ],
)
def test_a_bad_network_of_an_experiment_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadExperiment, match=message):
        make(**changes)


def test_the_network_of_an_experiment_is_described() -> None:
    experiment = make(topology="dumbbell", rates_mbps={ACCESS: 1000}, fabric_mode="reactive")
    assert experiment.network == "3 hosts behind 2 switches (dumbbell)"
    widths = sorted(shape.rate_bps for shape in experiment.layout.shapes.values())
    assert widths == [100_000_000] * 2 + [1_000_000_000] * 2
    assert make().network == "3 hosts behind one switch (star)"
    assert Experiment.from_json(experiment.to_json()) == experiment
