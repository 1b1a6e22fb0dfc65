"""Clocks of processes differ by hours and are set meanwhile: no recorded time and no age follows them."""

from __future__ import annotations

import json
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from flowdb.flow import NS_PER_S
from flowdb.models import FlowRow
from tests.support.agent.switch_bench import Bench
from tests.support.controllers.port_samples import LISTENER
from tests.support.controllers.processes import controller, free_port
from tests.support.controllers.shifted_clock import ShiftedClock
from tests.support.dashboard.browser import dashboard
from tests.support.database.rows import rows
from tests.support.waiting import wait_until

pytestmark = pytest.mark.beside_others

HOURS_S = 7 * 3600


def closed(database: Path, port: int) -> list[FlowRow]:
    return [row for row in rows(database, FlowRow) if row.dst_port == port and row.closed_ns]


@pytest.mark.parametrize("ahead_s", [-HOURS_S, HOURS_S])
def test_clocks_change_no_age_and_no_record(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead_s: int
) -> None:
    """The controller's clock is hours from the switch's. Then both are set, in opposite directions."""
    port, database = free_port(), tmp_path / "weir.db"
    ours = ShiftedClock(tmp_path / "controller", ahead_s)
    switchs = ShiftedClock(tmp_path / "agent", 0)
    monkeypatch.setenv("WEIR_DB", str(database))
    monkeypatch.setenv("WEIR_TEST_APPS", "fabric_app.app,sdtcp_app.app")
    monkeypatch.setenv("WEIR_TEST_SAMPLES", str(tmp_path / "events"))
    monkeypatch.setenv("PYTHONPATH", str(ours.folder), prepend=":")
    monkeypatch.setitem(bench.ovs.env, "PYTHONPATH", str(switchs.folder))
    with controller("ryu", LISTENER, port) as process:
        bench.ready_agent(f"tcp:127.0.0.1:{port}")
        wait_until(bench.ping, "ping through the fabric")
        bench.connect_once(8080)
        wait_until(lambda: closed(database, 8080), "the first flow has ended")
        ours.set(-ahead_s)
        switchs.set(-ahead_s)
        bench.connect_once(8081)
        wait_until(lambda: closed(database, 8081), "the second flow has ended")
        assert process.poll() is None
    now_ns = time.time_ns() + ahead_s * NS_PER_S
    for row in (*closed(database, 8080), *closed(database, 8081)):
        assert 0 <= row.closed_ns - row.opened_ns < 10 * NS_PER_S
        assert 0 <= now_ns - row.opened_ns < 60 * NS_PER_S, "by the controller's clock as it was at its start"
        assert row.close_reason == "fin"


def shown(address: str, what: str) -> Any:
    """An answer of the dashboard's API."""
    with urllib.request.urlopen(f"{address}/api/v1/{what}", timeout=10) as answer:  # noqa: S310 - ours
        return json.load(answer)


def test_the_clock_of_one_process_changes_no_age_and_no_record(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process after the other has its clock set forward and back, while the others keep theirs."""
    of_port, database = free_port(), tmp_path / "weir.db"
    clocks = {name: ShiftedClock(tmp_path / name, 0) for name in ("agent", "writer", "web")}
    clocks["controller"] = ShiftedClock(tmp_path / "controller", 0, clocks["writer"])
    monkeypatch.setenv("WEIR_DB", str(database))
    monkeypatch.setenv("WEIR_TEST_APPS", "fabric_app.app,sdtcp_app.app")
    monkeypatch.setenv("WEIR_TEST_SAMPLES", str(tmp_path / "events"))
    monkeypatch.setenv("PYTHONPATH", str(clocks["controller"].folder))
    monkeypatch.setitem(bench.ovs.env, "PYTHONPATH", str(clocks["agent"].folder))
    with controller("ryu", LISTENER, of_port):
        bench.ready_agent(f"tcp:127.0.0.1:{of_port}")
        wait_until(bench.ping, "ping through the fabric")
        monkeypatch.setenv("PYTHONPATH", str(clocks["web"].folder))
        with dashboard(f"sqlite:///{database}", tmp_path) as address:
            port = 8080
            for name, clock in clocks.items():
                for ahead_s in (HOURS_S, -HOURS_S):
                    clock.set(ahead_s)
                    bench.connect_once(port)
                    (row,) = wait_until(lambda of=port: closed(database, of), f"{name}: a flow has ended")
                    assert 0 <= row.closed_ns - row.opened_ns < 10 * NS_PER_S, name
                    assert 0 <= time.time_ns() - row.opened_ns < 60 * NS_PER_S, name
                    assert [run["alive"] for run in shown(address, "controllers")] == [True], name
                    (bottleneck,) = shown(address, "bottlenecks?to=10.77.0.2")
                    assert 0 <= bottleneck["age_s"] < 60, name
                    port += 1
                clock.set(0)
