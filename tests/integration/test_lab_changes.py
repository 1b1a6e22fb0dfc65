"""Changes to a network of the lab while packets pass: its delay, its rate, the attributes of a route."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mininet_topos.errors import LabError
from mininet_topos.experiments.experiment import Case, Experiment
from mininet_topos.experiments.schemes import scheme_of
from mininet_topos.machine.commands import run
from mininet_topos.machine.programs import wait_until
from mininet_topos.network.impairment import Impairment
from mininet_topos.network.lab_network import Network, network_apart
from mininet_topos.network.nodes import LabHost, inside
from mininet_topos.network.receive_buffers import buffer_bytes
from mininet_topos.network.shaping import change_rate
from mininet_topos.running.scheme_programs import running
from tests.support.lab.diamond import ECHO

STREAM = str(Path(ECHO).with_name("stream.py"))
PORT = "7000"


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


@contextmanager
def _connected(net: Network, program: str, *roles: str) -> Iterator[LabHost]:
    """Run a program as server on the root, and as client on a sender; yields the sender."""
    sender, receiver = net.senders[0], net.root
    serve, call, *more = roles
    argv = (sys.executable, program)
    with subprocess.Popen(inside(receiver, *argv, serve, PORT), stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == b"listening\n"
            calling = inside(sender, *argv, call, receiver.IP(), PORT, *more)
            with subprocess.Popen(calling, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as client:
                try:
                    yield sender
                finally:
                    client.kill()
        finally:
            server.kill()


def test_a_new_connection_starts_with_the_initial_window_of_its_route(net: Network) -> None:
    sender = net.senders[0]
    sender.set_route(initial_window=2)
    try:
        with _connected(net, ECHO, "serve", "call", "1"):
            assert wait_until(lambda: " cwnd:2 " in sender.cmd(f"ss -tinH dst :{PORT}"), 5)
    finally:
        sender.set_route(initial_window=0)
    assert "initcwnd" not in sender.cmd("ip route show scope link")


def test_a_receiver_never_advertises_more_than_its_window(net: Network) -> None:
    """Linux sets the largest window anew when full segments arrive; it must be the same then."""
    buffers = net.root.cmd("sysctl -n net.ipv4.tcp_rmem")
    net.root.set_window(2896)
    windows: list[int] = []
    try:
        with _connected(net, STREAM, "sink", "source") as sender:

            def moved() -> bool:
                shown = str(sender.cmd(f"ss -tinH dst :{PORT}"))
                windows.extend(map(int, re.findall(r" snd_wnd:(\d+)", shown)))
                acked = re.findall(r" bytes_acked:(\d+)", shown)
                return bool(acked) and int(acked[0]) > 1_000_000

            assert wait_until(moved, 20)
        recorded = net.root.sysctls()["tcp_rmem"]
    finally:
        net.root.set_window(0)
    assert recorded.split() == [str(buffer_bytes(2896))] * 3
    assert net.root.sysctls()["tcp_rmem"] == " ".join(buffers.split())
    assert 1448 < max(windows) <= 2896
    assert net.root.cmd("sysctl -n net.ipv4.tcp_rmem") == buffers


def test_ecn_is_set_and_a_value_that_the_kernel_refuses_is_named(net: Network) -> None:
    host = net.root
    for value in (1, 0):
        host.set_ecn(value)
        assert host.cmd("sysctl -n net.ipv4.tcp_ecn").strip() == str(value)
    with pytest.raises(LabError, match="tcp_ecn=99"):
        host.set_ecn(99)
    assert host.tcp_ecn == 0
