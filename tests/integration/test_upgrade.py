"""An agent of another version takes over under traffic, and moves or refuses what it finds."""

from __future__ import annotations

import json
import re
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from openflow_ext import wire
from tests.support.agent.clamped_stream import (
    NORMAL,
    clamp_all,
    scaled_streaming,
    segments,
    wider_windows,
)
from tests.support.agent.streaming import await_clamps
from tests.support.agent.switch_bench import Bench, Controller, run
from tests.support.openflow.flow_mods import TCP4, ext, flow_mod
from tests.support.source_tree import PACKAGES
from tests.support.waiting import wait_until
from weir_base.paths import PROJECT, build_dir

pytestmark = pytest.mark.beside_others

COUNT = wire.IncrementNi()
OTHER_LAYOUT = (
    (r"(\t__u64 marked;\n)(\t__u64 alarms;\n\t__u64 normals;\n)", r"\2\1"),
    (r"\t__u64 weight_in_turn[^\n]*\n", r"\g<0>\t__u64 pad_of_another_version;\n"),
    (r"(\t__u32 reported_ms;[^\n]*\n)(\t__u32 swept;[^\n]*\n)", r"\2\1"),
)
"""Fields of each port's state and of each flow in another order, and a longer state."""


def other_version(folder: Path, *changes: tuple[str, str]) -> Path:
    """A built copy of the project whose BPF sources are changed by regular expressions."""
    for package in PACKAGES:
        shutil.copytree(PROJECT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    sources = sorted((folder / "openflow_ext/bpf").glob("*.[hc]"))
    for found, instead in changes:
        texts = {source: re.subn(found, instead, source.read_text()) for source in sources}
        assert sum(count for _, count in texts.values()), found
        for source, (text, _) in texts.items():
            source.write_text(text)
    build(folder)
    return folder


def build(folder: Path) -> None:
    """Build the programs of a copy of the project."""
    (folder / "build").mkdir(exist_ok=True)
    shutil.copy(build_dir() / "vmlinux.h", folder / "build")
    source = "openflow_ext/bpf/weir.bpf.c"
    flags = ("-O2", "-g", "-target", "bpf", "-mcpu=v3", "-D__TARGET_ARCH_x86")
    include = ("-I", "build", "-I", "openflow_ext/bpf")
    run("clang", *flags, *include, "-c", source, "-o", "build/weir.bpf.o", cwd=folder)


def shown(bench: Bench, *command: str, version: Path = PROJECT) -> Any:
    """What a command of a version shows of the data plane."""
    weir = (sys.executable, "-W", "ignore", "-m", "weir", *command, "--name", bench.name, "--json")
    return json.loads(run("env", "-C", str(version), *weir))


def held_flows(bench: Bench, version: Path = PROJECT) -> set[tuple[object, ...]]:
    """The parts of each flow that an upgrade keeps: its part in N_i and both window scales."""
    kept = ("port", "local", "local_port", "counted", "local_scale", "remote_scale")
    flows = shown(bench, "flows", "--tracked", version=version)["flows"]
    return {tuple(flow[name] for name in kept) for flow in flows}


def n_i(bench: Bench, version: Path = PROJECT) -> list[int]:
    """N_i of each port."""
    return [port["n_i"] for port in shown(bench, "ports", version=version)["ports"]]


def examined(bench: Bench) -> list[int]:
    """The ACKs that the data plane has examined, by the host that sent them."""
    return [bench.port_counters(number).acks_seen for number in (1, 2)]


def sent_acks(bench: Bench) -> list[int]:
    """The segments that each host has sent, without its SYN or SYN-ACK."""
    return [segments(bench, number)[1] - 1 for number in (1, 2)]


def test_a_stream_is_clamped_and_counted_across_an_upgrade(
    bench: Bench, controller: Controller, tmp_path: Path
) -> None:
    """The first agent is of a version with another layout of the same fields."""
    other = other_version(tmp_path / "other", *OTHER_LAYOUT)
    bench.within = ("env", "-C", str(other))
    agent = bench.ready_agent(controller)
    controller.accept()
    clamp_all(controller)
    controller.send(flow_mod({**TCP4, "tcp_flags": (2, 2)}, [ext(COUNT), NORMAL], priority=8, xid=6))
    assert controller.barrier() == []
    bench.within = ()
    with wider_windows(bench) as unclamped, scaled_streaming(bench) as finish:
        wait_until(lambda: sum(n_i(bench, other)) == 1, "the stream is counted")
        before = held_flows(bench, other), n_i(bench, other)
        agent.end(signal.SIGKILL)
        bench.ready_agent(controller)
        controller.accept()
        assert (held_flows(bench), n_i(bench)) == before
        assert {one.priority for one in bench.rules()} == {7, 8}
        await_clamps(bench, "the stream is clamped by the next version")
        sent, came = finish()
    assert came == sent > 0
    assert unclamped == []
    assert segments(bench, 1) == segments(bench, 2)[::-1], "none is lost"
    assert examined(bench) == sent_acks(bench), "each is counted once"


def test_an_upgrade_that_would_lose_state_is_refused_until_told_to(
    bench: Bench, controller: Controller, tmp_path: Path
) -> None:
    """The first agent's version keeps something in each flow that this version does not know."""
    other = other_version(tmp_path / "other", ("out_before_resume", "out_before_return"))
    bench.within = ("env", "-C", str(other))
    bench.ready_agent(controller).end(signal.SIGKILL)
    bench.within = ()
    refused = bench.agent("--controller", controller.target)
    message = refused.await_event("error")["message"]
    assert "it would lose other_flows.out_before_return" in message
    assert f"weir switch --name {bench.name} --discard-state" in message
    assert refused.end(None) == 1
    assert shown(bench, "ports", version=other)["ports"], "what was there works on"
    agent = bench.agent("--controller", controller.target, "--discard-state")
    assert agent.await_event("ready")["failed"] == []
    assert any("are discarded" in line.get("message", "") for line in agent.lines)
    assert len(bench.attached()) == 2
