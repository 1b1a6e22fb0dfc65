"""Ryu's own apps through the agent, unchanged; several controllers on one bridge; TLS."""

from __future__ import annotations

import json
import struct
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from openflow_ext import wire
from openflow_ext.switch.openflow import messages as of
from tests.support.agent.certificates import certify
from tests.support.agent.switch_bench import Bench, Controller
from tests.support.controllers.processes import controller as ryu_process
from tests.support.controllers.processes import free_port
from tests.support.openflow.flow_mods import TCP4, ext, flow_mod, ofproto, output
from tests.support.waiting import wait_until

pytestmark = pytest.mark.beside_others

SET = ext(wire.SetWindow(1536))


def get(port: int, path: str, data: Any = None) -> Any:
    body = None if data is None else json.dumps(data).encode()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", body, timeout=10) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def asked(port: int, path: str) -> Any:
    """The answer of a REST app, once it listens and its answer is not empty."""

    def look() -> Any:
        try:
            return get(port, path)
        except OSError:
            return None

    return wait_until(look, f"{path} is answered")


@pytest.mark.parametrize("version", ["13", "15"])
def test_learning_switches_work_in_both_versions(bench: Bench, version: str) -> None:
    bench.ovs.vsctl("set", "bridge", bench.bridge, f"protocols=OpenFlow{version}")
    port = free_port()
    with ryu_process("ryu", f"ryu.app.simple_switch_{version}", port):
        bench.ready_agent(f"tcp:127.0.0.1:{port}")
        wait_until(bench.ping, "ping through the learning switch")
        assert bench.ping(3)


def test_the_rest_apps_read_entries_back_as_written(bench: Bench, controller: Controller) -> None:
    port, rest_port = free_port(), free_port()
    options = (
        "--wsapi-host",
        "127.0.0.1",
        "--wsapi-port",
        str(rest_port),
        "ryu.app.gui_topology.gui_topology",
    )
    with ryu_process("ryu", "ryu.app.ofctl_rest", port, *options):
        bench.agent("--controller", f"tcp:127.0.0.1:{port}", "--controller", controller.target).await_event(
            "ready"
        )
        controller.accept()
        controller.send(flow_mod(TCP4, [SET, output(2)], priority=9))
        assert controller.barrier() == []
        (dpid,) = asked(rest_port, "/stats/switches")
        entry = next(one for one in get(rest_port, f"/stats/flow/{dpid}")[str(dpid)] if one["priority"] == 9)
        ours, theirs = entry["instructions"][0]["actions"]
        assert (ours["experimenter"], theirs["port"]) == (wire.WEIR_EXPERIMENTER_ID, 2)
        (topology,) = asked(rest_port, "/v1.0/topology/switches")
        assert len(topology["ports"]) == 2
        get(rest_port, "/stats/flowentry/delete", {"dpid": dpid, "priority": 9, "match": {}})
        wait_until(lambda: bench.rules() == [], "the whole entry is deleted by another controller")


def test_a_slave_controller_changes_neither_part(bench: Bench, controller: Controller) -> None:
    second = Controller()
    try:
        bench.agent("--controller", controller.target, "--controller", second.target).await_event("ready")
        controller.accept()
        second.accept()
        for one, role, generation in ((controller, 2, 1), (second, 3, 1)):
            body = role.to_bytes(4, "big") + bytes(4) + generation.to_bytes(8, "big")
            assert one.ask(of.HEADER.pack(4, 24, 24, 30) + body)[1] == 25
        refused = [
            flow_mod(TCP4, [SET, output(2)], xid=31),
            wire.encode_message(wire.PortConfig(1, wire.PortConfigFlags.WINDOW, common_rtt_us=9), xid=31),
            wire.encode_message(wire.Arm(1), xid=31),
        ]
        for message in refused:
            answer = second.ask(message)
            assert (answer[1], answer[9], answer[11]) == (
                of.OFPT_ERROR,
                ofproto.OFPET_BAD_REQUEST,
                ofproto.OFPBRC_IS_SLAVE,
            )
        assert bench.rules() == []
        controller.send(*refused)
        assert [message[1] for message in controller.barrier()] == [of.OFPT_EXPERIMENTER]
        assert len(bench.rules()) == 1
    finally:
        second.close()


def take_role(controller: Controller, role: int, generation: int) -> bytes | tuple[int, int]:
    """The generation_id of the reply, or the type and code of the error."""
    body = role.to_bytes(4, "big") + bytes(4) + generation.to_bytes(8, "big")
    answer = controller.ask(of.HEADER.pack(4, of.OFPT_ROLE_REQUEST, 24, 30) + body)
    if answer[1] == of.OFPT_ERROR:
        return int.from_bytes(answer[8:10], "big"), int.from_bytes(answer[10:12], "big")
    assert answer[8:12] == body[:4]
    return answer[16:24]


def may_configure(controller: Controller) -> bool:
    config = wire.PortConfig(1, wire.PortConfigFlags.WINDOW, common_rtt_us=9)
    return controller.ask(wire.encode_message(config, xid=31))[1] == of.OFPT_EXPERIMENTER


def test_open_vswitch_checks_generation_ids(bench: Bench, controller: Controller) -> None:
    second = Controller()
    stale = ofproto.OFPET_ROLE_REQUEST_FAILED, ofproto.OFPRRFC_STALE
    equal, master, slave = ofproto.OFPCR_ROLE_EQUAL, ofproto.OFPCR_ROLE_MASTER, ofproto.OFPCR_ROLE_SLAVE
    try:
        bench.agent("--controller", controller.target, "--controller", second.target).await_event("ready")
        controller.accept()
        second.accept()
        assert take_role(controller, master, 5) == (5).to_bytes(8, "big")
        assert take_role(second, master, 6) == (6).to_bytes(8, "big")
        assert (may_configure(controller), may_configure(second)) == (False, True)
        assert take_role(controller, master, 5) == stale
        assert take_role(controller, slave, 5) == stale
        assert (may_configure(controller), may_configure(second)) == (False, True)
        take_role(controller, equal, 0)
        assert may_configure(controller)
        assert take_role(controller, master, 6) == (6).to_bytes(8, "big")
        assert (may_configure(controller), may_configure(second)) == (True, False)
    finally:
        second.close()


def test_each_session_has_its_own_asynchronous_masks(bench: Bench, controller: Controller) -> None:
    second = Controller()
    masks = struct.pack("!6I", 7, 7, 7, 7, 0, 0)
    try:
        bench.agent("--controller", controller.target, "--controller", second.target).await_event("ready")
        controller.accept()
        second.accept()
        controller.send(of.HEADER.pack(4, ofproto.OFPT_SET_ASYNC, 32, 40) + masks)
        get = of.HEADER.pack(4, ofproto.OFPT_GET_ASYNC_REQUEST, 8, 41)
        assert controller.ask(get)[8:] == masks
        assert second.ask(get)[8:] != masks
        controller.send(flow_mod(TCP4, [SET, output(2)], flags=ofproto.OFPFF_SEND_FLOW_REM))
        assert controller.barrier() == []
        controller.send(flow_mod(TCP4, command=ofproto.OFPFC_DELETE))
        second.next_of(of.OFPT_FLOW_REMOVED)  # Open vSwitch may send it after the answer to a barrier
        assert controller.barrier() == []
        assert bench.rules() == []
    finally:
        second.close()


def test_the_agent_reaches_ryu_over_tls(bench: Bench, tmp_path: Path) -> None:
    for name in ("ca", "switch", "controller"):
        certify(tmp_path, name)
    port = free_port()
    options = ("--ofp-ssl-listen-port", str(port), "--ctl-privkey", f"{tmp_path}/controller.key")
    options += ("--ctl-cert", f"{tmp_path}/controller.pem", "--ca-certs", f"{tmp_path}/ca.pem")
    names = (tmp_path / file for file in ("switch.key", "switch.pem", "ca.pem"))
    bench.ovs.vsctl("set-ssl", *map(str, names))
    with ryu_process("ryu", "ryu.app.simple_switch_13", free_port(), *options):
        bench.ready_agent(f"ssl:127.0.0.1:{port}")
        wait_until(bench.ping, "ping through the learning switch")
