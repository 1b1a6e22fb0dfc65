"""Changes to a network of the lab while packets pass: its delay, its rate, the attributes of a route."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from mininet_topos.errors import LabError
from mininet_topos.experiments.experiment import Case, Experiment
from mininet_topos.experiments.schemes import scheme_of
from mininet_topos.machine.commands import run
from mininet_topos.network.impairment import Impairment
from mininet_topos.network.lab_network import Network, network_apart
from mininet_topos.network.nodes import inside
from mininet_topos.network.shaping import change_rate
from mininet_topos.running.scheme_programs import running
from tests.support.lab.diamond import ECHO


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
    host.set_route(min_rto_ms=5)
    host.set_route(congestion_control="reno")
    route = str(host.cmd("ip route show scope link"))
    assert "rto_min lock 5ms" in route
    assert "congctl reno" in route
    host.set_route(min_rto_ms=0)
    route = str(host.cmd("ip route show scope link"))
    assert "rto_min" not in route
    assert "congctl reno" in route
    with pytest.raises(LabError, match="no_such_cc"):
        host.set_route(congestion_control="no_such_cc")
    assert host.route.congestion_control == "reno"


def test_windows_of_a_route_reach_its_connections(net: Network) -> None:
    """A sender starts with two segments, and a receiver advertises at most two."""
    sender, receiver = net.senders[0], net.root
    sender.set_route(initial_window=2)
    receiver.set_route(window_bytes=2896)
    argv = (sys.executable, ECHO)
    try:
        with subprocess.Popen(inside(receiver, *argv, "serve", "7000"), stdout=subprocess.PIPE) as served:
            assert served.stdout is not None
            assert served.stdout.readline() == b"listening\n"
            calling = inside(sender, *argv, "call", receiver.IP(), "7000", "1")
            with subprocess.Popen(calling, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as call:
                assert call.stdout is not None
                assert call.stdout.readline()
                shown = str(sender.cmd("ss -tinH dst :7000"))
                call.kill()
            served.kill()
    finally:
        sender.set_route(initial_window=0)
        receiver.set_route(window_bytes=0)
    assert " cwnd:2 " in shown
    assert 0 < int(re.findall(r" snd_wnd:(\d+)", shown)[0]) <= 2896
    assert "window" not in receiver.cmd("ip route show scope link")
