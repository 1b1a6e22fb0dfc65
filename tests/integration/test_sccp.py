"""SCCP on a real switch: on both engines, in both versions, through reconnects and port changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from openflow_ext.wire import PortCountersFlags
from sccp_app.core import TABLE_I
from tests.support.agent.switch_bench import Bench, run
from tests.support.controllers.port_samples import LISTENER
from tests.support.controllers.processes import controller, free_port
from tests.support.waiting import wait_until

pytestmark = pytest.mark.beside_others

MBIT = 1_000_000
COMMON_RTT_US = 600


def share_bytes(bench: Bench, number: int) -> int:
    return bench.port_counters(number).fair_share_bytes


def whole_share_bytes(rate_mbit: int) -> int:
    return rate_mbit * MBIT * COMMON_RTT_US // 8_000_000


@pytest.mark.parametrize("version", ["13", "15"])
@pytest.mark.parametrize("engine", ["ryu", "os_ken"])
def test_table_i_and_shares_follow_rates_ports_and_controllers(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, version: str
) -> None:
    monkeypatch.setenv("WEIR_DB", str(tmp_path / "weir.db"))
    monkeypatch.setenv("WEIR_CONFIG", "")
    bench.ovs.vsctl("set", "bridge", bench.bridge, f"protocols=OpenFlow{version}")
    bench.shape(2, 100)
    port = free_port()
    monkeypatch.setenv("WEIR_TEST_APPS", "fabric_app.app,sccp_app.app")
    monkeypatch.setenv("WEIR_TEST_SAMPLES", str(tmp_path / "samples"))
    with controller(engine, LISTENER, port):
        bench.ready_agent(f"tcp:127.0.0.1:{port}")
        wait_until(lambda: share_bytes(bench, 2), "the port's share", whole_share_bytes(100).__eq__)
        wait_until(lambda: len(bench.rules()) == 2 * len(TABLE_I), "Table I")
        wait_until(
            lambda: PortCountersFlags.NO_QUEUE in bench.port_counters(1).flags,
            "the port reports that it has no queue",
        )
        assert bench.port_counters(1).fair_share_bytes == 0

        bench.shape(2, 50)
        wait_until(
            lambda: bench.port_counters(2).fair_share_bytes == whole_share_bytes(50),
            "its new rate is followed",
        )
        bench.shape(1, 20)
        wait_until(lambda: share_bytes(bench, 1), "a queue came", whole_share_bytes(20).__eq__)

        bench.ovs.vsctl("del-port", bench.bridge, bench.port(1))
        wait_until(lambda: bench.port(1) not in bench.attached(), "the port is gone")
        run("ip", "link", "del", bench.port(1))
        bench.plug(1)
        bench.shape(1, 30)
        wait_until(lambda: bench.port(1) in bench.attached(), "the port is back")
        wait_until(lambda: share_bytes(bench, 1), "and has its share", whole_share_bytes(30).__eq__)
    assert len(bench.rules()) == 2 * len(TABLE_I), "the switch goes on without its controller"
    with controller(engine, LISTENER, port):
        wait_until(bench.ping, "ping through the successor's fabric")
        wait_until(lambda: len(bench.rules()) == 2 * len(TABLE_I), "Table I of the successor")
        before = bench.port_counters(2).syns_counted
        bench.connect_once(8080)
        wait_until(
            lambda: bench.port_counters(2).n_i == bench.port_counters(1).n_i == 0, "the connection is over"
        )
        assert bench.port_counters(2).syns_counted == before + 1
