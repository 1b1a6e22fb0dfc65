"""Ports that are renamed, or moved from bridge to bridge, while the agent runs."""

from __future__ import annotations

import contextlib
import socket

import pytest

from openflow_ext import wire
from openflow_ext.switch.dataplane.pinned_maps import PinnedMaps
from tests.support.agent.switch_bench import Bench, Controller, run
from tests.support.openflow.flow_mods import TCP4, ext, flow_mod, ofproto, output
from tests.support.waiting import wait_until

pytestmark = pytest.mark.beside_others

NORMAL = output(ofproto.OFPP_NORMAL)


def carries_programs(ifname: str) -> bool:
    return '"xdp"' in run("ip", "-j", "link", "show", ifname)


def test_programs_counters_and_entries_follow_a_renamed_port(bench: Bench, joined: Controller) -> None:
    """Open vSwitch's userspace datapath uses the interface by its number until its port is deleted."""
    old, new = bench.port(1), f"{bench.port(1)}n"
    clamp = flow_mod(TCP4, [ext(wire.SetWindow(6144)), NORMAL], priority=7, xid=5)
    joined.send(flow_mod({}, [NORMAL], xid=4), clamp)
    assert joined.barrier() == []
    bench.connect_once(8080)
    before, rules = bench.counters(old), bench.rules()
    assert before.clamped > 0
    run("ip", "link", "set", old, "down")
    run("ip", "link", "set", old, "name", new)
    run("ip", "link", "set", new, "up")
    wait_until(bench.ping, "host 1 is reached again")
    bench.connect_once(8081)
    assert bench.attached() == {new: 1, bench.port(2): 2}
    assert bench.counters(new).clamped > before.clamped
    assert bench.rules() == rules
    bench.ovs.vsctl("del-port", old)
    wait_until(lambda: bench.attached() == {bench.port(2): 2}, "the port is detached")
    wait_until(lambda: not carries_programs(new), "its programs are gone")


def test_a_port_may_move_to_another_bridge_and_back(bench: Bench, controller: Controller) -> None:
    other, port = f"{bench.bridge}o", bench.port(1)
    bench.ovs.vsctl("add-br", other, "--", "set", "bridge", other, f"datapath_type={bench.datapath}")
    agent = bench.agent("--bridge", other, "--controller", controller.target)
    agent.await_event("ready")

    def owner() -> int | None:
        """The number of the bridge that the port is one of, where it carries the programs."""
        with contextlib.closing(PinnedMaps(bench.name)) as maps:
            bridge, _ = maps.ports().get(socket.if_nametoindex(port), (None, 0))
        return bridge if carries_programs(port) else None

    own = owner()
    assert own is not None
    bench.ovs.vsctl("del-port", bench.bridge, port, "--", "add-port", other, port)
    wait_until(lambda: owner() not in (None, own), "the port is the other bridge's")
    bench.ovs.vsctl("del-port", other, port, "--", "add-port", bench.bridge, port)
    wait_until(lambda: owner() == own, "the port is the first bridge's again")
    bench.ovs.vsctl("del-br", other)
    assert agent.end() == 0
    assert bench.leftovers() == []
