"""Changes to a network of the lab while packets pass: its delay, its rate, the attributes of a route."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from mininet_topos.errors import LabError
from mininet_topos.experiments.experiment import Case, Experiment
from mininet_topos.experiments.schemes import scheme_of
from mininet_topos.machine.commands import run
from mininet_topos.network.impairment import Impairment
from mininet_topos.network.lab_network import Network, network_apart
from mininet_topos.network.shaping import change_rate
from mininet_topos.running.scheme_programs import running


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    experiment = Experiment(
        name="changes",
        cases=(Case("changes", "changes", 1, 1, 1, 1),),
        schemes=("plain",),
        bandwidth_mbps=100,
        queue_bytes=150_000,
        delay_ms=1,
        pinned=False,
    )
    folder = tmp_path_factory.mktemp("changes")
    with (
        network_apart(experiment.layout, experiment.pinned) as built,
        running(scheme_of("plain"), built, folder / "run"),
    ):
        yield built


def _least_rtt_ms(net: Network) -> float:
    answer = net.senders[0].cmd(f"ping -q -i 0.02 -c 10 {net.root.IP()}")
    return float(re.findall(r"= ([\d.]+)/", answer)[0])


def test_a_delay_changes_while_packets_pass(net: Network) -> None:
    assert net.links is not None
    assert 2 <= _least_rtt_ms(net) < 12
    net.links.change(Impairment(delay_ms=10))
    assert 20 <= _least_rtt_ms(net) < 60
    net.links.change(Impairment(delay_ms=1))
    assert _least_rtt_ms(net) < 12


def test_a_rate_changes_while_packets_pass(net: Network) -> None:
    change_rate(net.bottleneck_ifname, 20_000_000)
    assert "rate 20Mbit ceil 20Mbit" in run("tc", "class", "show", "dev", net.bottleneck_ifname)
    with pytest.raises(LabError):
        change_rate("no-such-port", 20_000_000)


def test_a_congestion_control_and_a_minimum_rto_share_a_route(net: Network) -> None:
    host = net.senders[0]
    host.set_min_rto(5)
    host.set_congestion_control("reno")
    route = str(host.cmd("ip route show scope link"))
    assert "rto_min lock 5ms" in route
    assert "congctl reno" in route
    host.set_min_rto(0)
    route = str(host.cmd("ip route show scope link"))
    assert "rto_min" not in route
    assert "congctl reno" in route
    with pytest.raises(LabError, match="no_such_cc"):
        host.set_congestion_control("no_such_cc")
    assert host.congestion_control == "reno"
