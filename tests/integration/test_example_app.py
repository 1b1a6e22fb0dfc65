"""The example controller app on a real switch: its entries, its effect on traffic, and what is left of it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from openflow_ext.switch.dataplane.rules import WindowOp
from tests.support.agent.switch_bench import Bench
from tests.support.controllers.example_app import APPS, environment, install
from tests.support.controllers.processes import controller, free_port
from tests.support.waiting import wait_until

pytestmark = pytest.mark.beside_others

WINDOW_BYTES = 4000
TABLE, FABRIC_TABLE_BEHIND = 10, 32


def entries(bench: Bench, table: int) -> list[str]:
    return [line for line in bench.ovs.flows(bench.bridge) if f"table={table}," in line]


def clamped(bench: Bench) -> int:
    return sum(bench.port_counters(number).clamped for number in (1, 2))


def test_an_installed_app_acts_and_is_purged_when_it_does_not_run(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = install(tmp_path)
    config = tmp_path / "weir.toml"
    limit = f'subnet = "10.77.0.0/24"\nwindow_bytes = {WINDOW_BYTES}\n'
    config.write_text(f"[[window_limit.limits]]\n{limit}[flowdb]\nurl = 'sqlite:///{tmp_path}/weir.db'\n")
    for name, value in environment(target, WEIR_CONFIG=str(config)).items():
        monkeypatch.setenv(name, value)
    port = free_port()
    bench.shape(1, 100)
    bench.shape(2, 100)

    with controller("ryu", APPS[1], port, APPS[0]) as process:
        bench.ready_agent(f"tcp:127.0.0.1:{port}")
        wait_until(bench.ping, "ping through the fabric's tables, which are behind the app's")
        (rule,) = wait_until(bench.rules, "the entry of the app")
        assert (rule.table_id, rule.window_op, rule.window_bytes) == (
            TABLE,
            WindowOp.SET_WINDOW,
            WINDOW_BYTES,
        )
        assert entries(bench, FABRIC_TABLE_BEHIND)
        bench.connect_once(8080)
        assert clamped(bench) > 0
        process.send_signal(signal.SIGTERM)
        process.wait(30)

    before = clamped(bench)
    with controller("ryu", APPS[0], port):
        wait_until(lambda: bench.rules() == [], "the entry of the absent app is purged")
        wait_until(lambda: not entries(bench, TABLE), "nothing is left in the app's table")
        wait_until(lambda: not entries(bench, FABRIC_TABLE_BEHIND), "the fabric's old tables are empty")
        wait_until(bench.ping, "ping through the fabric's own tables")
        bench.connect_once(8081)
    assert clamped(bench) == before
