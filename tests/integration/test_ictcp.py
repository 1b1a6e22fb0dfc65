"""ICTCP at receiving hosts: real hosts and a stock switch, without a controller."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mininet_topos.experiments.experiment import Case, Experiment
from mininet_topos.experiments.schemes import schemes
from mininet_topos.machine.commands import command
from mininet_topos.network.lab_network import Network, network
from mininet_topos.network.layout import star
from mininet_topos.network.nodes import inside
from mininet_topos.network.shaping import Bottleneck
from mininet_topos.results.report import make_report
from mininet_topos.running.experiment_runner import Progress, run_experiment
from mininet_topos.running.receivers import choosing_windows
from tests.support.lab.stage import stage
from tests.support.lab.void_runs import shown

RATE_MBPS = 100
QUERIES = 5


@pytest.fixture
def net() -> Iterator[Network]:
    with network(star(4, 0, Bottleneck(RATE_MBPS * 1_000_000, queue_bytes=150_000))) as built:
        yield built


def on_root(net: Network, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(inside(net.root, *argv), capture_output=True, text=True, check=False)


def ictcp(net: Network, *words: str) -> subprocess.CompletedProcess[str]:
    return on_root(net, command("weir"), "transports", "ictcp", *words)


def clsact(net: Network) -> bool:
    return "clsact" in on_root(net, "tc", "qdisc", "show", "dev", interface(net)).stdout


def interface(net: Network) -> str:
    return str(net.root.defaultIntf().name)


def test_windows_follow_the_link_while_the_programs_are_attached(net: Network, tmp_path: Path) -> None:
    with stage(net, tmp_path, "plain", {}) as on, choosing_windows(schemes()["ictcp"], net):
        on.start_queries(size_bytes=100_000, gap_ms=10)
        on.await_queries(QUERIES)
        state = json.loads(ictcp(net, "show", interface(net), "--json").stdout)
    assert state["capacity_bps"] == RATE_MBPS * 1_000_000
    assert state["slots"] > QUERIES
    assert state["restarts"] >= len(net.workers)
    assert state["lowered"] > 0
    assert state["increases"] > 0
    assert not clsact(net)


def test_what_cannot_be_attached_is_named(net: Network) -> None:
    missing = ictcp(net, "attach", "eth99", "--rate-mbps", "100")
    assert (missing.returncode, interface(net) in missing.stderr) == (1, True)
    not_attached = ictcp(net, "show", interface(net))
    assert not_attached.returncode == 1
    assert f"weir transports ictcp attach {interface(net)}" in not_attached.stderr
    assert ictcp(net, "detach", interface(net)).returncode == 0
    assert not clsact(net)


def test_a_burst_loses_at_most_a_fifth_of_what_plain_tcp_loses(tmp_path: Path) -> None:
    """20 workers with 24 KB fill a queue of 64 KB three times over; two segments of each do not fill it."""
    experiment = Experiment(
        name="receiver",
        cases=(Case("burst", "20 workers", workers=20, size_bytes=24_000, queries=QUERIES),),
        schemes=("plain", "ictcp"),
        bandwidth_mbps=RATE_MBPS,
        queue_bytes=64_000,
        repeat_until_s=60,
    )
    run_experiment(experiment, tmp_path / "out", Progress(lambda text: None, lambda: None, print))
    rows = {row["scheme"]: shown(row) for row in make_report(tmp_path / "out")}
    assert rows["plain"]["drops"] > 0
    assert rows["ictcp"]["drops"] <= rows["plain"]["drops"] / 5
