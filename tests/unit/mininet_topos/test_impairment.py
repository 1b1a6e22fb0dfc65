"""Impairments: netem is set and read back, and the delay line stands in for it. The test answers for tc."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner

from mininet_topos.cli import experiments as cli_experiments
from mininet_topos.cli import lab
from mininet_topos.errors import BadExperiment, LabError, Unable
from mininet_topos.experiments.experiment import Experiment
from mininet_topos.measurement.counters import Snapshot
from mininet_topos.measurement.link_delay import wrong_delay
from mininet_topos.network import emulation, netem
from mininet_topos.network.delay_line import DelayLine, halves, settings, since
from mininet_topos.network.impairment import Impairment, bound_us
from mininet_topos.network.netem import LIMIT_PKTS, Netem
from mininet_topos.network.nodes import LabHost
from mininet_topos.records.validity import judge
from mininet_topos.running import experiment_runner
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
    with pytest.raises(LabError, match=r"^h1: its link has netem .*, not 100 ms delay, 0 % loss"):
        netem.check_impaired(HOST, Impairment(delay_ms=100))


def test_a_removed_netem_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel_of(monkeypatch).shown = [{"kind": "noqueue"}]
    with pytest.raises(LabError, match="another program has removed it"):
        netem.lost_pkts(HOST)


def test_losses_of_links_do_not_count_as_drops_of_open_vswitch(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel_of(monkeypatch, loss=0.01, drops=4)
    lost = Netem([HOST], Impairment(loss_percent=1)).counts().lost
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
        ({"delay_ms": 5, "jitter_ms": 6}, "jitter_ms is 6; want 0 to 5"),
        ({"duplicate_percent": 101}, "duplicate_percent is 101; want 0 to 100"),
        ({"reorder_percent": -1}, "reorder_percent is -1; want 0 to 100"),
        ({"jitter": "pareto"}, "jitter is 'pareto'; want uniform or normal"),
    ],
)
def test_a_delay_or_loss_out_of_range_is_refused(changes: dict[str, float], message: str) -> None:
    with pytest.raises(BadExperiment, match=message):
        one_case(**changes)
    assert one_case(delay_ms=5).layout.impairment == Impairment(delay_ms=5)
    assert not one_case().layout.impairment


@pytest.mark.parametrize(
    ("wanted", "netem_there", "means"),
    [
        (Impairment(), False, ""),
        (Impairment(delay_ms=5), True, "netem"),
        (Impairment(delay_ms=5), False, "delay line"),
        (Impairment(loss_percent=5), False, "delay line"),
        (Impairment(delay_ms=5, jitter_ms=1), True, "delay line"),
        (Impairment(duplicate_percent=1), True, "delay line"),
    ],
)
def test_netem_makes_delay_and_loss_if_the_kernel_has_it(
    monkeypatch: pytest.MonkeyPatch, wanted: Impairment, netem_there: bool, means: str
) -> None:
    monkeypatch.setattr(emulation, "has_netem", lambda: netem_there)
    monkeypatch.setattr(emulation, "built", lambda name: Path(name))
    assert emulation.means_of(wanted) == means


def test_without_netem_and_delay_line_a_delay_is_refused_before_anything_is_created(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def missing(name: str) -> Path:
        raise Unable(f"{name} is missing: run `make bpf`")

    monkeypatch.setattr(emulation, "has_netem", lambda: False)
    monkeypatch.setattr(emulation, "built", missing)
    monkeypatch.setattr("mininet_topos.cli.incast.require_machine", lambda: None)
    out = tmp_path / "out"
    done = CliRunner().invoke(lab, ["incast", "--delay", "5", "--out", str(out)])
    assert done.exit_code == 1
    assert done.stderr == "weir lab: weir-delay-line is missing: run `make bpf`\n"
    assert not out.exists()


def test_an_experiment_that_this_machine_cannot_run_is_skipped_and_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ran, repeats = [], []

    def run(experiment: Experiment, *_: object) -> None:
        if experiment.impairment:
            raise Unable("no delay line")
        ran.append((experiment.name, experiment.pinned))
        repeats.append(experiment.repeats)

    monkeypatch.setattr(cli_experiments, "require_machine", lambda: None)
    monkeypatch.setattr(experiment_runner, "run_experiment", run)
    for name, more in (("far", "delay_ms = 100\n"), ("near", ""), ("free", "pinned = false\n")):
        (tmp_path / f"{name}.toml").write_text(more + EXPERIMENT_FILE)
    files = [str(tmp_path / f"{name}.toml") for name in ("far", "near", "free")]
    several = CliRunner().invoke(lab, ["run", *files, "--raw", "--out", str(tmp_path)])
    assert (several.exit_code, ran) == (0, [("near", True), ("free", False)])
    assert several.stderr.splitlines()[-1] == "far is skipped: no delay line"
    (tmp_path / "farther.toml").write_text("delay_ms = 200\n" + EXPERIMENT_FILE)
    none = CliRunner().invoke(
        lab, ["run", files[0], str(tmp_path / "farther.toml"), "--raw", "--out", str(tmp_path)]
    )
    assert none.exit_code == 1, "nothing was measured"
    alone = CliRunner().invoke(lab, ["run", files[0], "--raw", "--out", str(tmp_path)])
    assert (alone.exit_code, alone.stderr.count("\n")) == (1, 1)
    CliRunner().invoke(lab, ["run", files[1], "--raw", "--unpinned", "--out", str(tmp_path)])
    assert ran[-1] == ("near", False)
    CliRunner().invoke(lab, ["run", files[1], "--raw", "--repeat", "6", "--out", str(tmp_path)])
    assert repeats[-2:] == [1, 6]


def test_any_error_of_one_experiment_leaves_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ran = []

    def run(experiment: Experiment, *_: object) -> None:
        if experiment.name == "bad":
            raise LabError("s1-eth1: the rate is 1 bit/s, not 2")
        ran.append(experiment.name)

    monkeypatch.setattr(cli_experiments, "require_machine", lambda: None)
    monkeypatch.setattr(experiment_runner, "run_experiment", run)
    for name in ("bad", "good"):
        (tmp_path / f"{name}.toml").write_text(EXPERIMENT_FILE)
    files = [str(tmp_path / f"{name}.toml") for name in ("bad", "good")]
    done = CliRunner().invoke(lab, ["run", *files, "--raw", "--out", str(tmp_path / "out")])
    assert (done.exit_code, ran) == (1, ["good"])
    assert done.stderr.splitlines()[-1] == "bad is skipped: s1-eth1: the rate is 1 bit/s, not 2"


def test_the_delay_line_divides_a_delay_between_both_directions() -> None:
    up, down = halves(Impairment(delay_ms=5, loss_percent=1))
    assert (settings(up), settings(down)) == ("delay_us=2500,loss=1", "delay_us=2500")
    up, down = halves(Impairment(5, jitter_ms=2, jitter="normal", reorder_percent=0.5, duplicate_percent=3))
    assert settings(up) == "delay_us=5000,jitter_us=2000,duplicate=3,reorder=0.5,normal"
    assert settings(down) == "-"


def _report(t_ms: float, **up: float) -> dict[str, Any]:
    counters = {"received": 0, "sent": 0, "lost": 0, "ring_dropped": 0, "vanished": 0, "lateness_us": {}} | up
    common = {"lateness_us": {"p99": 9.0}, "stalls": 1, "longest_stall_us": 1200.0, "cpu_us": t_ms * 100}
    return common | {"t_ns": t_ms * 1e6, "links": {"h1": {"up": counters, "down": dict(counters)}}}


def test_a_run_gets_the_growth_of_the_delay_lines_counters() -> None:
    grown = since(_report(1000, received=5, lost=1), _report(2000, received=25, lost=3, ring_dropped=1))
    assert grown["pkts"] == {"received": 40, "sent": 0, "lost": 4, "ring_dropped": 2, "vanished": 0}
    assert grown["not_on_purpose"] == {"ring_dropped": 2}
    assert (grown["cpu"], grown["stalls"], grown["longest_stall_us"]) == (0.1, 1, 1200.0)
    assert grown["hosts"]["h1"]["up"]["received"] == 20


def _delays(p1: float, p99: float, received: int = 100) -> dict[str, Any]:
    return {"sent": 100, "received": received, "delay_us": {"p1": p1, "p99": p99}}


@pytest.mark.parametrize(
    ("wanted", "up", "down", "wrong"),
    [
        (Impairment(10), _delays(5003, 5099), _delays(5001, 5050), ""),
        (Impairment(10), _delays(5003, 5101), _delays(5001, 5050), "5101 us at the 99th percentile (up)"),
        (Impairment(10), _delays(5003, 5009), _delays(4800, 5050), "4800 us at the 1st percentile (down)"),
        (Impairment(10), _delays(5003, 5009, 99), _delays(5001, 5050), "1 of 100 packets did not arrive"),
        (Impairment(10, 2.0), _delays(5003, 5009, 98), _delays(5001, 5050), ""),
        (Impairment(10, 2.0), {"sent": 9, "received": 0}, _delays(5001, 5050), "no packet arrived (up)"),
        (Impairment(0, 2.0), _delays(6, 900), _delays(6, 900), ""),
        (Impairment(10, jitter_ms=2), _delays(8100, 12_100), _delays(9, 140), ""),
        (
            Impairment(10, jitter_ms=2),
            _delays(8100, 12_100),
            _delays(9, 160),
            "160 us at the 99th percentile (down)",
        ),
        (Impairment(10, jitter_ms=2), _delays(8100, 12_300), _delays(9, 40), "12300 us at the 99th"),
    ],
)
def test_a_measured_delay_may_be_late_by_50_us_and_1_percent(
    wanted: Impairment, up: dict[str, Any], down: dict[str, Any], wrong: str
) -> None:
    found = wrong_delay(wanted, {"up": up, "down": down})
    assert found.startswith(wrong) if wrong else found == ""
    assert bound_us(5000) == 100


@pytest.mark.parametrize(
    ("links", "reason"),
    [
        ({"measured": {"wrong": ""}, "not_on_purpose": {}, "lateness_us": {"p99": 499.0}}, None),
        ({"measured": {"wrong": "9 us (up)"}}, "the measured delay is wrong: 9 us (up)"),
        ({"not_on_purpose": {"ring_dropped": 3}}, "the delay line lost packets: 3 ring_dropped"),
        (
            {"lateness_us": {"p99": 501.0}},
            "the delay line was late by 501 us at the 99th percentile; 500 are allowed",
        ),
    ],
)
def test_a_delay_line_that_is_wrong_late_or_loses_packets_voids_the_run(
    links: dict[str, Any], reason: str | None
) -> None:
    record = run_record() | {"links": {"by": DelayLine.means} | links}
    assert judge(record, QUERIES, CASE, one_case(delay_ms=10)) == ([reason] if reason else [])
