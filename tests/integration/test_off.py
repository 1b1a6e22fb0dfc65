"""`weir off` and `weir on` during a stream: at once, without losing state, with and without an agent."""

from __future__ import annotations

import json
import signal
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from openflow_ext import wire
from tests.support.agent.streaming import await_clamps, await_window, clamped_streaming
from tests.support.agent.switch_bench import Agent, Bench, Controller, run
from tests.support.openflow.flow_mods import TCP4, ext, flow_mod, ofproto, output
from tests.support.waiting import wait_until

pytestmark = pytest.mark.beside_others

SYN = 0x02
CLAMP_BYTES = 6144
OFF_KEY = "external_ids:weir-off"


def weir(bench: Bench, *argv: str) -> dict[str, Any]:
    options = ("--name", bench.name, "--rundir", str(bench.ovs.rundir), "--json")
    return json.loads(run(sys.executable, "-m", "weir", *argv, *options, env=bench.ovs.env))


def clamp_everything(controller: Controller) -> None:
    """Clamp all TCP, and count SYNs."""
    normal = output(ofproto.OFPP_NORMAL)
    count = ext(wire.IncrementNi(ofproto.OFPP_ANY))
    controller.send(
        flow_mod({}, [normal], xid=4),
        flow_mod(TCP4, [ext(wire.SetWindow(CLAMP_BYTES)), normal], priority=7, xid=5),
        flow_mod(TCP4 | {"tcp_flags": (SYN, SYN)}, [count, normal], priority=8, xid=6),
    )
    assert controller.barrier() == []


def is_noted(bench: Bench) -> bool:
    """Whether Open vSwitch's database notes for the next agent that the bridge is off."""
    return "true" in bench.ovs.vsctl("--if-exists", "get", "bridge", bench.bridge, OFF_KEY)


def is_clamped(window: int) -> bool:
    return window <= CLAMP_BYTES


def is_free(window: int) -> bool:
    return window > 4 * CLAMP_BYTES


def test_off_and_on_act_at_once_and_keep_flows_entries_and_counts(
    bench: Bench, controller: Controller
) -> None:
    agent = bench.ready_agent(controller)
    controller.accept()
    clamp_everything(controller)
    rules = bench.rules()
    with clamped_streaming(bench) as finish:
        await_window(bench, is_clamped, "the stream is clamped")

        done = weir(bench, "off")

        assert done["bridges"] == [{"bridge": bench.bridge, "ports": 2, "off": 2}]
        await_window(bench, is_free, "the window is the receiver's own")
        await_clamps(bench)
        assert bench.port_counters(2).observes
        assert (bench.port_counters(2).n_i, bench.rules()) == (1, rules)

        agent.end(signal.SIGKILL)
        successor = bench.ready_agent(controller)
        controller.accept()
        await_clamps(bench)
        assert is_free_for_long(bench), "a restart turns nothing on"

        assert weir(bench, "on")["bridges"][0]["off"] == 0
        await_window(bench, is_clamped, "the stream is clamped again")
        assert (bench.port_counters(2).n_i, bench.rules()) == (1, rules)
        sent, came = finish()
    assert came == sent > 0
    assert not is_noted(bench)
    assert successor.end() == 0
    assert bench.leftovers() == []


def is_free_for_long(bench: Bench) -> bool:
    """Whether no ACK is lowered while a hundred of them pass."""
    await_clamps(bench)
    await_window(bench, is_free, "the window is the receiver's own")
    return bench.port_counters(2).observes


def test_off_and_on_act_while_no_agent_runs(bench: Bench, controller: Controller) -> None:
    agent: Agent = bench.ready_agent(controller)
    controller.accept()
    clamp_everything(controller)
    with clamped_streaming(bench) as finish:
        agent.end(signal.SIGKILL)
        await_window(bench, is_clamped, "the data plane goes on without an agent")

        weir(bench, "off")
        await_window(bench, is_free, "off")
        weir(bench, "on")
        await_window(bench, is_clamped, "on")
        sent, came = finish()
    assert came == sent > 0
    assert bench.agent("--detach", env_only=True).end(None) == 0
    assert bench.leftovers() == []


def test_on_leaves_a_switch_observing_whose_agent_observes(
    bench: Bench, controller: Controller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The settings of the command, without the agent's file, say that ports act."""
    config = tmp_path / "weir.toml"
    config.write_text('[switch]\nmode = "observe"\n')
    with monkeypatch.context() as settings_of_agent:
        settings_of_agent.setitem(bench.ovs.env, "WEIR_CONFIG", str(config))
        bench.ready_agent(controller)
    controller.accept()
    assert weir(bench, "off")["bridges"][0]["off"] == 2

    assert weir(bench, "on")["bridges"] == [{"bridge": bench.bridge, "ports": 2, "off": 2}]

    assert all(bench.port_counters(number).observes for number in (1, 2))
    assert not is_noted(bench)


def test_a_controller_turns_the_switch_off_and_on(bench: Bench, controller: Controller) -> None:
    bench.ready_agent(controller)
    controller.accept()
    clamp_everything(controller)
    flags = wire.PortConfigFlags.SWITCH
    with clamped_streaming(bench) as finish:
        for off, holds in ((True, is_free), (False, is_clamped)):
            request = wire.PortConfig(wire.OFPP_ANY, flags, off=off)
            reply = wire.decode_message(controller.ask(wire.encode_message(request, xid=9)))
            assert isinstance(reply, wire.PortConfigReply)
            assert reply.off is off
            await_window(bench, holds, f"off: {off}")
            wait_until(lambda: is_noted(bench), "it is noted for the next agent", off.__eq__)
        sent, came = finish()
    assert came == sent > 0


def test_a_support_bundle_of_a_running_switch_holds_its_ports_entries_and_maps(
    bench: Bench, controller: Controller, tmp_path: Path
) -> None:
    bench.ready_agent(controller)
    controller.accept()
    clamp_everything(controller)
    out = tmp_path / "report.tar.gz"
    run(sys.executable, "-m", "weir", "support", "--name", bench.name, "--out", str(out), env=bench.ovs.env)
    with tarfile.open(out) as tar:
        held = {
            name: json.load(tar.extractfile(f"weir-support/{name}.json"))
            for name in ("ports", "entries", "maps")
        }
    assert {row["name"] for row in held["ports"]} == {bench.port(1), bench.port(2)}
    assert any("SET_WINDOW(6144)" in row["actions"] for row in held["entries"])
    assert all(row["max_entries"] > 0 for row in held["maps"])
    assert {"flow_buckets", "exact_rules", "ports"} <= {row["map"] for row in held["maps"]}
