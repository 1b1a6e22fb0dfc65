"""A bridge keeps its entries when the agent and the controller are killed, and gets its fail mode back."""

from __future__ import annotations

import signal
import time

import pytest

from openflow_ext import wire
from tests.support.agent.switch_bench import Bench, Controller
from tests.support.openflow.flow_mods import TCP4, ext, flow_mod, output
from weir import probes

pytestmark = pytest.mark.beside_others

PROBE_MS = 5_000
"""The shortest inactivity probe of Open vSwitch. In standalone it deletes the entries after three of them."""
STANDALONE_DELETES_S = 3 * PROBE_MS / 1000 + 3


def fail_mode(bench: Bench) -> str:
    return bench.ovs.vsctl("get", "bridge", bench.bridge, "fail_mode")


@pytest.fixture
def lax(bench: Bench) -> Bench:
    """A bench whose bridge has no fail mode, as Open vSwitch creates it: it is standalone."""
    bench.ovs.vsctl("del-fail-mode", bench.bridge)
    return bench


def test_entries_outlive_a_killed_agent_and_controller(lax: Bench, controller: Controller) -> None:
    lax.ovs.vsctl("set-controller", lax.bridge, controller.target)
    row = lax.bridge_controller(controller.target)
    lax.ovs.vsctl("set", "controller", row, f"inactivity_probe={PROBE_MS}")
    controller.accept()
    agent = lax.agent()
    agent.await_event("ready")
    controller.accept()
    controller.send(flow_mod(TCP4, [ext(wire.SetWindow(1536)), output(2)], xid=70))
    assert controller.barrier() == []
    before, rules = lax.ovs.flows(lax.bridge), lax.rules()
    assert before
    assert rules
    agent.end(signal.SIGKILL)
    controller.close()
    time.sleep(STANDALONE_DELETES_S)
    assert lax.ovs.flows(lax.bridge) == before
    assert lax.rules() == rules
    assert lax.agent("--detach", env_only=True).end(None) == 0
    assert fail_mode(lax) == "[]"
    assert lax.leftovers() == []


def test_the_fail_mode_is_saved_once_and_restored(lax: Bench, controller: Controller) -> None:
    """The successor of a killed agent restores the mode that was there before both."""
    lax.ovs.vsctl("set-fail-mode", lax.bridge, "standalone")
    lax.ready_agent(controller).end(signal.SIGKILL)
    assert fail_mode(lax) == "secure"
    successor = lax.ready_agent(controller)
    assert fail_mode(lax) == "secure"
    assert successor.end() == 0
    assert fail_mode(lax) == "standalone"
    assert lax.leftovers() == []


def test_a_fail_mode_that_somebody_sets_meanwhile_is_reported_and_kept(
    lax: Bench, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OVS_RUNDIR", str(lax.ovs.rundir))
    assert probes.fail_mode() == "no bridge is extended"
    agent = lax.ready_agent(controller)
    assert probes.fail_mode() == f"secure on {lax.bridge}"
    lax.ovs.vsctl("set-fail-mode", lax.bridge, "standalone")
    while "its fail mode is no longer secure" not in agent.await_event("log")["message"]:
        pass
    with pytest.raises(probes.ProbeFailed, match=f"bridge {lax.bridge}: not secure"):
        probes.fail_mode()
    assert agent.end() == 0
    assert fail_mode(lax) == "standalone"
    assert lax.leftovers() == []
