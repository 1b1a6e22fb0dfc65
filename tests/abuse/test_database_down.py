"""The network forwards while the database is down: at the controller's start, and later."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowdb import schema
from flowdb.engine import open_engine
from flowdb.models import HostRow, RunRow, SwitchRow
from tests.support.agent.switch_bench import Bench
from tests.support.controllers.port_samples import LISTENER, figures
from tests.support.controllers.processes import controller, free_port
from tests.support.database.postgres import Postgres
from tests.support.database.rows import rows
from tests.support.waiting import wait_until

pytestmark = pytest.mark.beside_others


@pytest.mark.postgres
@pytest.mark.parametrize("engine", ["ryu", "os_ken"])
def test_a_controller_starts_and_goes_on_without_its_database(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    port, metrics_port = free_port(), free_port()
    config = tmp_path / "weir.toml"
    config.write_text(f'[sdtcp]\nmetrics = "127.0.0.1:{metrics_port}"\n', encoding="utf-8")
    monkeypatch.setenv("WEIR_CONFIG", str(config))
    monkeypatch.setenv("WEIR_TEST_APPS", "fabric_app.app,sdtcp_app.app")
    monkeypatch.setenv("WEIR_TEST_SAMPLES", str(tmp_path / "events"))
    with Postgres() as cluster:
        schema.upgrade(open_engine(cluster.url), cluster.url)
        monkeypatch.setenv("WEIR_DB", cluster.url)
        cluster.stop()
        with controller(engine, LISTENER, port):
            bench.ready_agent(f"tcp:127.0.0.1:{port}")
            wait_until(bench.ping, "ping while the database has never been there")
            cluster.start()
            wait_until(lambda: len(rows(cluster.url, HostRow)) >= 2, "the hosts are in the database")
            (switch,) = rows(cluster.url, SwitchRow)
            cluster.stop()
            assert bench.ping(5)
            bench.connect_once(8080)
            cluster.start()
            wait_until(
                lambda: figures(metrics_port)["weir_flowdb_rows_waiting", None] == 0, "all rows are written"
            )
            assert figures(metrics_port)["weir_flowdb_rows_lost", None] == 0
        (run,) = rows(cluster.url, RunRow)
        assert (switch.connected, run.ended_ns) == (True, None)
