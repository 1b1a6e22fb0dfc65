"""SCCP on a real switch: on both engines, in both versions, through reconnects and port changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from openflow_ext.switch.dataplane import NoShare, PortCounters
from sccp_app.core import TABLE_I
from tests.integration.switch_bench import Bench, run, until
from tests.unit.engines import controller, free_port
from tests.unit.test_telemetry_process import LISTENER

MBIT = 1_000_000
COMMON_RTT_US = 600


def shape(bench: Bench, number: int, rate_mbit: int) -> None:
    """Give a port a rate and a queue."""
    tbf = ("tbf", "rate", f"{rate_mbit}mbit", "burst", "15k", "limit", "150000")
    run("tc", "qdisc", "replace", "dev", bench.port(number), "root", *tbf)


def counters(bench: Bench, number: int) -> PortCounters:
    return bench.counters(bench.port(number))


def whole_share_bytes(rate_mbit: int) -> int:
    return rate_mbit * MBIT * COMMON_RTT_US // 8_000_000


@pytest.mark.parametrize("version", ["13", "15"])
@pytest.mark.parametrize("engine", ["ryu", "os_ken"])
def test_table_i_and_the_shares_stay_true(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, version: str
) -> None:
    monkeypatch.setenv("WEIR_DB", str(tmp_path / "weir.db"))
    monkeypatch.delenv("WEIR_CONFIG", raising=False)
    bench.ovs.vsctl("set", "bridge", bench.bridge, f"protocols=OpenFlow{version}")
    shape(bench, 2, 100)
    port = free_port()
    monkeypatch.setenv("WEIR_TEST_APPS", "fabric_app.app,sccp_app.app")
    monkeypatch.setenv("WEIR_TEST_SAMPLES", str(tmp_path / "samples"))
    with controller(engine, LISTENER, port):
        bench.ready_agent(f"tcp:127.0.0.1:{port}")
        until(lambda: counters(bench, 2).fair_share_bytes == whole_share_bytes(100), "the port's share")
        until(lambda: len(bench.rules()) == 2 * len(TABLE_I), "Table I")
        until(lambda: counters(bench, 1).no_share == NoShare.QUEUE, "it is said that a port has no queue")
        assert counters(bench, 1).fair_share_bytes == 0

        shape(bench, 2, 50)
        until(
            lambda: counters(bench, 2).fair_share_bytes == whole_share_bytes(50), "its new rate is followed"
        )
        shape(bench, 1, 20)
        until(lambda: counters(bench, 1).fair_share_bytes == whole_share_bytes(20), "a queue came")

        bench.ovs.vsctl("del-port", bench.bridge, bench.port(1))
        until(lambda: bench.port(1) not in bench.attached(), "the port is gone")
        run("ip", "link", "del", bench.port(1))
        bench.plug(1)
        shape(bench, 1, 30)
        until(lambda: bench.port(1) in bench.attached(), "the port is back")
        until(lambda: counters(bench, 1).fair_share_bytes == whole_share_bytes(30), "and has its share")
    assert len(bench.rules()) == 2 * len(TABLE_I), "the switch goes on without its controller"
    with controller(engine, LISTENER, port):
        until(bench.ping, "ping through the successor's fabric")
        until(lambda: len(bench.rules()) == 2 * len(TABLE_I), "Table I of the successor")
        before = counters(bench, 2).syns_counted
        bench.connect_once(8080)
        until(lambda: counters(bench, 2).n_i == counters(bench, 1).n_i == 0, "the connection is over")
        assert counters(bench, 2).syns_counted == before + 1
