"""Delay and loss are set and read back, and refused without netem. The test answers for tc."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner

from mininet_topos.cli import experiments as cli_experiments
from mininet_topos.cli import lab
from mininet_topos.errors import BadExperiment, LabError
from mininet_topos.measurement.counters import Snapshot
from mininet_topos.network import impairment as netem
from mininet_topos.network.impairment import LIMIT_PKTS, Impairment
from mininet_topos.network.nodes import LabHost
from mininet_topos.records.validity import judge
from mininet_topos.running import experiment_runner as running
from tests.support.lab.examples import CASE, EXPERIMENT_FILE, QUERIES, one_case, run_record

HOST = cast(LabHost, SimpleNamespace(name="h1", pid=7, defaultIntf=lambda: SimpleNamespace(name="h1-eth0")))


class Kernel:
    """Answers for `tc` as iproute2 6.1 prints it: a delay in seconds, a loss as a part of one."""

    def __init__(self, delay_s: float = 0.0, loss: float = 0.0, drops: int = 0) -> None:
        self.ran: list[str] = []
        options: dict[str, Any] = {"limit": LIMIT_PKTS, "ecn": False, "gap": 0}
        if delay_s:
            options["delay"] = {"delay": delay_s, "jitter": 0, "correlation": 0}
        if loss:
            options["loss-random"] = {"loss": loss, "correlation": 0}
        self.shown = [{"kind": "netem", "handle": "8001:", "root": True, "drops": drops, "options": options}]

    def run(self, *argv: str) -> str:
        self.ran.append(" ".join(argv))
        return json.dumps(self.shown) if "show" in argv else ""


def kernel_of(monkeypatch: pytest.MonkeyPatch, **options: Any) -> Kernel:
    kernel = Kernel(**options)
    monkeypatch.setattr(netem, "run", kernel.run)
    return kernel


@pytest.mark.parametrize(
    ("wanted", "answer", "command"),
    [
        (Impairment(delay_ms=100), {"delay_s": 0.1}, "delay 100000us"),
        (Impairment(delay_ms=0.05), {"delay_s": 49.984e-6}, "delay 50us"),
        (Impairment(loss_percent=0.1), {"loss": 0.00099999993}, "loss random 0.1%"),
        (Impairment(15, 2.5), {"delay_s": 0.015, "loss": 0.025}, "delay 15000us loss random 2.5%"),
    ],
)
def test_delay_and_loss_are_set_and_read_back(
    monkeypatch: pytest.MonkeyPatch, wanted: Impairment, answer: dict[str, float], command: str
) -> None:
    kernel = kernel_of(monkeypatch, **answer)
    netem.impair(HOST, wanted)
    tc = "mnexec -a 7 tc"
    assert kernel.ran == [
        f"{tc} qdisc replace dev h1-eth0 root netem limit {LIMIT_PKTS} {command}",
        f"{tc} -s -j qdisc show dev h1-eth0",
    ]


@pytest.mark.parametrize("answer", [{}, {"delay_s": 0.099}, {"delay_s": 0.1, "loss": 0.01}])
def test_a_link_with_another_delay_or_loss_is_refused(
    monkeypatch: pytest.MonkeyPatch, answer: dict[str, float]
) -> None:
    kernel_of(monkeypatch, **answer)
    with pytest.raises(LabError, match=r"^h1: its link has netem .*, not Impairment\(delay_ms=100"):
        netem.check_impaired(HOST, Impairment(delay_ms=100))


def test_a_removed_netem_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel_of(monkeypatch).shown = [{"kind": "noqueue"}]
    with pytest.raises(LabError, match="another program has removed it"):
        netem.lost_pkts(HOST)


def test_losses_of_links_do_not_count_as_drops_of_open_vswitch(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel_of(monkeypatch, loss=0.01, drops=4)
    lost = netem.lost_pkts(HOST)
    counted = Snapshot({"OutSegs": 100, "RetransSegs": 4, "InSegs": 99}, 1, 0, 0, link_losses=lost)
    assert counted.ovs_drops == 0
    assert counted.since(counted).link_losses == 0


def test_a_loss_on_a_link_with_a_delay_only_voids_the_run() -> None:
    record = run_record(counters={"link_losses": 3})
    assert judge(record, QUERIES, CASE, one_case(delay_ms=10)) == ["links that only delay lost 3 packets"]
    assert judge(record, QUERIES, CASE, one_case(loss_percent=1)) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"delay_ms": -1}, "delay_ms is -1; want 0 to 10000"),
        ({"delay_ms": 10_001}, "want 0 to 10000"),
        ({"loss_percent": 91}, "loss_percent is 91; want 0 to 90"),
    ],
)
def test_a_delay_or_loss_out_of_range_is_refused(changes: dict[str, float], message: str) -> None:
    with pytest.raises(BadExperiment, match=message):
        one_case(**changes)
    assert one_case(delay_ms=5).layout.impairment == Impairment(delay_ms=5)
    assert not one_case().layout.impairment


@pytest.fixture
def no_netem(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*argv: str) -> str:
        raise LabError(f"{' '.join(argv)}: Error: Specified qdisc kind is unknown.")

    monkeypatch.setattr(netem, "run", refuse)
    monkeypatch.setattr(cli_experiments, "require_machine", lambda: None)
    monkeypatch.setattr("mininet_topos.cli.incast.require_machine", lambda: None)


@pytest.mark.usefixtures("no_netem")
def test_without_netem_a_delay_is_refused_before_anything_is_created(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = CliRunner().invoke(lab, ["incast", "--delay", "5", "--out", str(out)])
    assert done.exit_code == 1
    assert done.stderr.startswith(
        "weir lab: delay and loss need netem, and this kernel has none: run `modprobe"
    )
    assert done.stderr.count("\n") == 1
    assert not out.exists()


@pytest.mark.usefixtures("no_netem")
def test_an_experiment_that_needs_netem_is_skipped_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = []

    def run(experiment: Any, *_: object) -> None:
        if experiment.impairment:
            netem.require_netem()
        ran.append(experiment.name)

    monkeypatch.setattr(running, "run_experiment", run)
    for name, more in (("far", "delay_ms = 100\n"), ("near", "")):
        (tmp_path / f"{name}.toml").write_text(more + EXPERIMENT_FILE)
    files = [str(tmp_path / "far.toml"), str(tmp_path / "near.toml")]
    several = CliRunner().invoke(lab, ["run", *files, "--raw", "--out", str(tmp_path)])
    assert (several.exit_code, ran) == (0, ["near"])
    assert several.stderr.splitlines()[-1].startswith("far is skipped: delay and loss need netem")
    alone = CliRunner().invoke(lab, ["run", files[0], "--raw", "--out", str(tmp_path)])
    assert (alone.exit_code, alone.stderr.count("\n")) == (1, 1)
