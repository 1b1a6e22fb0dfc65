"""Port counters of a real switch reach events, the database, the dashboard and Prometheus."""

from __future__ import annotations

import json
import time
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from flowdb.models import PortRow, PortSampleRow, SettingRow, SwitchRow
from tests.support.agent.switch_bench import Bench, run
from tests.support.controllers.port_samples import LISTENER, figures
from tests.support.controllers.processes import controller, free_port
from tests.support.dashboard.application import make
from tests.support.database.rows import rows
from tests.support.waiting import wait_until

SERVER_PORT = 8080


def counted(database: Path, gives_share: bool) -> list[PortSampleRow]:
    """Samples of the server's port that count its connection and, under SCCP, have its share."""
    found = [row for row in rows(database, PortSampleRow) if row.port_no == 2 and row.acks_seen]
    return [row for row in found if (row.fair_share_bytes > 0) == gives_share]


def told(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.mark.parametrize("engine", ["ryu", "os_ken"])
@pytest.mark.parametrize("app", ["sdtcp", "sccp"])
def test_counters_reach_events_database_dashboard_and_metrics(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, app: str
) -> None:
    port, metrics_port, gives_share = free_port(), free_port(), app == "sccp"
    run("tc", "qdisc", "add", "dev", bench.port(2), "root", "bfifo", "limit", "150000")
    config, database, events = tmp_path / "weir.toml", tmp_path / "weir.db", tmp_path / "events"
    config.write_text(
        f'[telemetry]\nsample_s = 0.2\n[{app}]\nmetrics = "127.0.0.1:{metrics_port}"\n', encoding="utf-8"
    )
    monkeypatch.setenv("WEIR_CONFIG", str(config))
    monkeypatch.setenv("WEIR_DB", str(database))
    monkeypatch.setenv("WEIR_TEST_APPS", f"fabric_app.app,{app}_app.app")
    monkeypatch.setenv("WEIR_TEST_SAMPLES", str(events))
    with controller(engine, LISTENER, port):
        bench.ready_agent(f"tcp:127.0.0.1:{port}")
        wait_until(bench.ping, "ping through the fabric")
        bench.connect_once(SERVER_PORT)
        try:
            sample = wait_until(lambda: counted(database, gives_share), "samples that count the connection")[
                -1
            ]
        finally:
            print("told:", told(events)[-1:], "counted:", bench.counters(bench.port(2)))
        name, dpid = bench.port(2), f"{sample.dpid:016x}"
        assert sample.capacity_bps > 0

        found = figures(metrics_port)
        assert found["weir_port_acks_seen_total", name] >= sample.acks_seen
        assert (("weir_port_fair_share_bytes", name) in found) == gives_share
        (first, *_) = told(events)
        assert (f"{first['dpid']:016x}", [one[1] for one in first["samples"]]) == (
            dpid,
            [bench.port(1), bench.port(2)],
        )

        client = make(f"sqlite:///{database}", tmp_path).test_client()
        shown = client.get(f"/api/v1/ports/{dpid}/2/series?span_s=60").json
        assert (shown["figures"]["port"]["name"], len(shown["figures"]["at_ns"]) > 0) == (name, True)
        assert name in client.get(f"/ports/{dpid}/2").text

        before = len(told(events))
        began = time.monotonic()
        wait_until(lambda: len(told(events)) >= before + 10, "samples go on")
        assert time.monotonic() - began >= 8 * 0.2, "nine intervals, of which the first had begun"
    ours = {row.port_no: row.name for row in rows(database, PortRow) if row.port_no in (1, 2)}
    assert ours == {1: bench.port(1), 2: bench.port(2)}
    assert {row.dpid for row in rows(database, SwitchRow)} == {sample.dpid}
    assert {row.section for row in rows(database, SettingRow)} == {"fabric", "telemetry", app}


def test_a_switch_without_an_agent_is_asked_for_counters_once(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an agent the switch refuses the request, and its session goes on."""
    port = free_port()
    config = tmp_path / "weir.toml"
    config.write_text("[telemetry]\nsample_s = 0.1\n")
    monkeypatch.setenv("WEIR_CONFIG", str(config))
    monkeypatch.setenv("WEIR_DB", str(tmp_path / "weir.db"))
    monkeypatch.setenv("WEIR_TEST_APPS", "fabric_app.app")
    with controller("ryu", LISTENER, port) as process:
        bench.ovs.vsctl("set-controller", bench.bridge, f"tcp:127.0.0.1:{port}")
        assert process.stdout is not None
        said = list(takewhile(lambda line: "does not have Weir's port counters" not in line, process.stdout))
        wait_until(bench.ping, "ping through the fabric")
        assert bench.ping(5), "a second in which it would be asked again"
        process.terminate()
        said += list(process.stdout)
        assert sum("refuses message" in line for line in said) == 1, "fabric_app warns of each refusal"
    assert rows(tmp_path / "weir.db", PortSampleRow) == []
