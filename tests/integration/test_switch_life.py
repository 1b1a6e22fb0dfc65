"""The agent's start, stop, death and succession."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from openflow_ext import wire
from openflow_ext.switch.dataplane.pinned_maps import PinnedMaps
from openflow_ext.switch.dataplane.qdiscs import Qdiscs
from openflow_ext.switch.dataplane.removal import carries_programs
from tests.support.agent.clamped_stream import clamp_all, scaled_streaming
from tests.support.agent.streaming import await_clamps
from tests.support.agent.switch_bench import Bench, Controller, run
from tests.support.openflow.flow_mods import TCP4, ext, flow_mod, output
from tests.support.waiting import wait_until

pytestmark = pytest.mark.beside_others

SET = ext(wire.SetWindow(1536))
ALARM, WINDOW = wire.PortConfigFlags.ALARM, wire.PortConfigFlags.WINDOW


def put_rule(controller: Controller) -> None:
    controller.accept()
    controller.send(flow_mod(TCP4, [SET, output(2)], xid=70))
    assert controller.barrier() == []


def test_the_bridge_s_configured_controllers_are_used_and_restored(
    bench: Bench, controller: Controller
) -> None:
    bench.ovs.vsctl("set-controller", bench.bridge, controller.target, "ptcp:0:127.0.0.1")
    bench.ovs.vsctl("set", "controller", bench.bridge_controller(controller.target), "inactivity_probe=30000")
    controller.accept()
    agent = bench.agent()
    agent.await_event("ready")
    socket_target = f"unix:{bench.ovs.rundir}/{bench.bridge}.controller"
    assert sorted(bench.controllers()) == ["ptcp:0:127.0.0.1", socket_target]
    controller.accept()
    assert agent.end() == 0
    assert sorted(bench.controllers()) == ["ptcp:0:127.0.0.1", controller.target]
    row = bench.bridge_controller(controller.target)
    assert bench.ovs.vsctl("get", "controller", row, "inactivity_probe") == "30000"
    assert bench.leftovers() == []
    controller.accept()


def test_the_data_plane_outlives_a_killed_agent_and_is_adopted(bench: Bench, controller: Controller) -> None:
    bench.ovs.vsctl("set-controller", bench.bridge, "tcp:127.0.0.1:1")
    agent = bench.ready_agent(controller)
    put_rule(controller)
    before = bench.rules()
    agent.end(signal.SIGKILL)
    assert bench.attached() == {bench.port(1): 1, bench.port(2): 2}
    assert '"xdp"' in run("ip", "-j", "link", "show", bench.port(1))
    successor = bench.ready_agent(controller)
    assert bench.rules() == before != []
    controller.accept()
    assert successor.end() == 0
    assert bench.controllers() == ["tcp:127.0.0.1:1"]
    assert bench.leftovers() == []


def carries(name: str) -> bool:
    with contextlib.closing(Qdiscs()) as qdiscs:
        return carries_programs(socket.if_nametoindex(name), qdiscs)


@pytest.mark.parametrize(
    ("what", "argv"),
    [
        ("the egress program with its qdisc", ("tc", "qdisc", "del", "dev", "{}", "clsact")),
        ("the egress program", ("tc", "filter", "del", "dev", "{}", "egress")),
        ("the ingress program", ("ip", "link", "set", "dev", "{}", "xdpgeneric", "off")),
    ],
)
def test_programs_that_another_tool_detaches_are_attached_again(
    bench: Bench, controller: Controller, what: str, argv: tuple[str, ...]
) -> None:
    agent = bench.ready_agent(controller)
    put_rule(controller)
    name, before = bench.port(1), bench.rules()
    assert carries(name)
    agent.process.send_signal(signal.SIGSTOP)
    run(*(word.format(name) for word in argv))
    assert not carries(name), what
    agent.process.send_signal(signal.SIGCONT)
    wait_until(lambda: carries(name), f"{what} is attached again")
    assert (bench.attached(), bench.rules()) == ({bench.port(1): 1, bench.port(2): 2}, before)
    controller.accept()
    assert agent.end() == 0
    assert bench.leftovers() == []


def test_the_successor_of_a_killed_agent_knows_its_settings(bench: Bench, controller: Controller) -> None:
    agent = bench.ready_agent(controller)
    controller.accept()
    config = wire.PortConfig(1, ALARM | WINDOW, 20, 500, common_rtt_us=300, cookie=0xC0, priority=3)
    before = wire.decode_message(controller.ask(wire.encode_message(config, xid=5)))
    armed = wire.ArmEntry(IPv4Address("10.77.0.2"), IPv4Address("10.77.0.1"), 80, 40000, 1536)
    controller.send(wire.encode_message(wire.Arm(1, (armed,)), xid=6))
    assert controller.barrier() == []
    agent.end(signal.SIGKILL)
    bench.ready_agent(controller)
    controller.accept()
    read = wire.encode_message(wire.PortConfig(1), xid=7)
    assert wire.decode_message(controller.ask(read)) == before
    assert [rule.window_bytes for rule in bench.armed(1)] == [1536]


def test_keep_leaves_the_data_plane_for_a_successor(bench: Bench, controller: Controller) -> None:
    agent = bench.agent("--controller", controller.target, "--keep")
    agent.await_event("ready")
    put_rule(controller)
    before = bench.rules()
    assert agent.end() == 0
    assert bench.rules() == before != []
    bench.ready_agent(controller)
    controller.accept()
    assert bench.rules() == before


def test_detach_removes_everything_that_a_killed_agent_left(bench: Bench, controller: Controller) -> None:
    bench.ovs.vsctl("set-controller", bench.bridge, "tcp:127.0.0.1:1")
    agent = bench.ready_agent(controller)
    put_rule(controller)
    refused = bench.agent("--detach", env_only=True)
    assert "already runs" in refused.await_event("error")["message"]
    assert refused.end(None) == 1
    agent.end(signal.SIGKILL)
    detached = bench.agent("--detach", env_only=True)
    assert detached.await_event("detached")["bridges"] == [bench.bridge]
    assert detached.end(None) == 0
    assert bench.controllers() == ["tcp:127.0.0.1:1"]
    assert bench.leftovers() == []


def test_another_size_of_the_flow_table_is_taken_over(
    bench: Bench, controller: Controller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = bench.ready_agent(controller)
    put_rule(controller)
    before = bench.attached(), bench.rules()
    agent.end(signal.SIGKILL)
    config = tmp_path / "weir.toml"
    config.write_text("[switch]\nmax_flows = 1000\n")
    monkeypatch.setitem(bench.ovs.env, "WEIR_CONFIG", str(config))
    successor = bench.ready_agent(controller)
    assert (bench.attached(), bench.rules()) == before
    with contextlib.closing(PinnedMaps(bench.name)) as maps:
        assert maps.max_flows == 1000
    controller.accept()
    assert successor.end() == 0
    assert bench.leftovers() == []


def test_a_bridge_that_was_created_again_starts_without_the_old_rules(
    bench: Bench, controller: Controller
) -> None:
    bench.ready_agent(controller)
    put_rule(controller)
    assert bench.rules()
    bench.ovs.vsctl("del-br", bench.bridge)
    wait_until(lambda: bench.attached() == {}, "the ports are detached")
    bench.add_bridge()
    bench.ovs.vsctl("add-port", bench.bridge, bench.port(1))
    controller.accept()
    wait_until(lambda: list(bench.attached()) == [bench.port(1)], "the port is attached")
    assert bench.rules() == []


def test_external_ids_that_somebody_removes_are_written_again(bench: Bench, controller: Controller) -> None:
    bench.ovs.vsctl("set-controller", bench.bridge, "tcp:127.0.0.1:1")
    agent = bench.ready_agent(controller)
    put_rule(controller)
    before = bench.rules()
    bench.ovs.vsctl("clear", "bridge", bench.bridge, "external_ids")

    def external_ids() -> str:
        return bench.ovs.vsctl("get", "bridge", bench.bridge, "external_ids")

    wait_until(lambda: "weir-name" in external_ids(), "the agent has written its external_ids")
    assert bench.rules() == before != []
    assert agent.end() == 0
    assert bench.controllers() == ["tcp:127.0.0.1:1"]
    assert bench.leftovers() == []


def test_the_agent_survives_a_restart_of_open_vswitch(bench: Bench, controller: Controller) -> None:
    agent = bench.ready_agent(controller)
    controller.accept()
    bench.ovs.stop("ovs-vswitchd")
    bench.ovs.stop("ovsdb-server")
    bench.ovs.start_server()
    bench.ovs.start_vswitchd()
    controller.accept()
    wait_until(
        lambda: bench.attached() == {bench.port(1): 1, bench.port(2): 2}, "the ports carry the programs"
    )
    assert agent.end() == 0
    assert bench.leftovers() == []


def tracked(bench: Bench) -> set[tuple[int, str, int, int | None]]:
    """The port, local end and window scale of the flows whose handshakes were seen."""
    with contextlib.closing(PinnedMaps(bench.name)) as maps:
        return {
            (flow.ifindex, flow.local, flow.local_port, flow.local_scale)
            for flow in maps.flows()
            if flow.state != "opening"
        }


def test_a_restart_of_the_ovsdb_server_costs_no_flow(bench: Bench, controller: Controller) -> None:
    """The interface numbers in OVSDB are missing until Open vSwitch has connected again."""
    agent = bench.ready_agent(controller)
    controller.accept()
    clamp_all(controller)
    vswitchd = int((bench.ovs.rundir / "ovs-vswitchd.pid").read_text())
    with scaled_streaming(bench) as finish:
        before = wait_until(lambda: tracked(bench), "the stream is tracked", lambda found: len(found) == 2)
        bench.ovs.stop("ovsdb-server")
        os.kill(vswitchd, signal.SIGSTOP)
        try:
            bench.ovs.start_server()
            while agent.await_event("log")["message"] != "reconnected to OVSDB":
                pass
        finally:
            os.kill(vswitchd, signal.SIGCONT)
        await_clamps(bench, "the stream is clamped afterwards")
        assert tracked(bench) == before
        sent, came = finish()
    assert came == sent > 0
    assert agent.end() == 0


def test_an_agent_that_cannot_start_prints_the_reason_and_changes_nothing(
    bench: Bench, controller: Controller
) -> None:
    def reason(*argv: str) -> str:
        agent = bench.agent(*argv)
        message: str = agent.await_event("error")["message"]
        assert agent.end(None) == 1
        assert "\n" not in message
        return message

    before = bench.ovs.vsctl("list", "bridge", bench.bridge)
    to = ("--controller", controller.target)
    assert f"Open vSwitch has no bridge nobr; its bridges: {bench.bridge}" in reason("--bridge", "nobr", *to)
    assert "use --controller" in reason()
    assert "no directory /nowhere" in reason(*to, "--rundir", "/nowhere")
    assert "expected tcp:HOST" in reason("--controller", "udp:127.0.0.1")
    assert "ovs-vsctl set-ssl" in reason("--controller", "ssl:127.0.0.1")
    assert bench.leftovers() == []
    assert bench.ovs.vsctl("list", "bridge", bench.bridge) == before
    agent = bench.ready_agent(controller)
    assert "another agent already runs" in reason(*to)
    controller.accept()
    assert agent.end() == 0
    bench.ovs.stop("ovs-vswitchd")
    assert "ovs-vswitchd does not serve bridge" in reason(*to)
    bench.ovs.stop("ovsdb-server")
    assert "no OVSDB server" in reason(*to)
    bench.ovs.start_server()
    bench.ovs.start_vswitchd()
    assert bench.leftovers() == []
