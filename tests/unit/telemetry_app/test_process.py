"""Sampling in a real controller process with all apps, under both engines, against a scripted switch."""

import json
import time

import pytest

from flowdb.models import PortSampleRow
from openflow_ext import wire
from tests.support.controllers.port_samples import LISTENER, a_record, figures
from tests.support.controllers.processes import controller, free_port
from tests.support.database.rows import rows
from tests.support.openflow.scripted_switch import ScriptedSwitch
from tests.support.waiting import wait_until


class CountingSwitch(ScriptedSwitch):
    """Replies to each request for port counters in ``parts``. Without parts it stays silent."""

    def __init__(self, port, parts=(), **options):
        self.asked_at = []
        self._parts = parts
        super().__init__(port, **options)

    def _answer(self, data):
        if not (data[1] == wire.OFPT_MULTIPART_REQUEST and wire.is_extension_message(data)):
            super()._answer(data)
            return
        self.asked_at.append(time.monotonic())
        for place, ports in enumerate(self._parts, 1):
            records = tuple(a_record(number, n_i=len(self.asked_at)) for number in ports)
            reply = wire.PortCountersReply(records, more=place < len(self._parts))
            self._socket.sendall(wire.encode_message(reply, xid=wire.decode_header(data).xid))


@pytest.fixture(params=["ryu", "os_ken"])
def process(request, tmp_path, monkeypatch):
    """A controller process with all apps and the metrics of both controllers."""
    folder, ports = tmp_path, [free_port() for _ in range(3)]
    config = folder / "weir.toml"
    config.write_text(
        f'[telemetry]\nsample_s = 0.2\n[sdtcp]\nmetrics = "127.0.0.1:{ports[1]}"\n'
        f'[sccp]\nmetrics = "127.0.0.1:{ports[2]}"\n'
    )
    monkeypatch.setenv("WEIR_CONFIG", str(config))
    monkeypatch.setenv("WEIR_DB", str(folder / "weir.db"))
    monkeypatch.setenv("WEIR_TEST_APPS", "fabric_app.app,sdtcp_app.app,sccp_app.app")
    monkeypatch.setenv("WEIR_TEST_SAMPLES", str(folder / "samples"))
    with controller(request.param, LISTENER, ports[0]) as process:
        process.port, process.metrics, process.folder = ports[0], ports[1:], folder
        yield process


def published(process):
    """The events that the listening app received."""
    file = process.folder / "samples"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_one_request_serves_apps_database_and_metrics(process):
    """A second switch stays silent and disturbs nothing."""
    switch = CountingSwitch(process.port, parts=((1, 2), (3,)))
    silent = CountingSwitch(process.port, dpid=2)
    wait_until(lambda: published(process), "ten events", lambda events: len(events) >= 10)
    samples = published(process)
    assert [event["dpid"] for event in samples] == [1] * len(samples)
    assert [event["samples"] for event in samples] == [
        [[port_no, "p", n_i] for port_no in (1, 2, 3)] for n_i in range(1, len(samples) + 1)
    ], "one event per request, with all parts"
    assert switch.asked_at[9] - switch.asked_at[0] > 6 * 0.2, "one request per interval"
    assert len(silent.asked_at) == 1
    for port in process.metrics:
        found = figures(port)
        assert found["weir_port_n_i", "p"] >= 10
        assert found["weir_flowdb_rows_lost", None] == 0
    wait_until(
        lambda: rows(process.folder / "weir.db", PortSampleRow), "30 samples", lambda found: len(found) >= 30
    )
    assert {row.port_no for row in rows(process.folder / "weir.db", PortSampleRow)} == {1, 2, 3}
    switch.close()
    wait_until(
        lambda: published(process)[-1],
        "the samples of a disconnected switch to end",
        lambda last: last == {"dpid": 1, "samples": []},
    )
    wait_until(
        lambda: figures(process.metrics[0]),
        "its metrics to disappear",
        lambda found: ("weir_port_n_i", "p") not in found,
    )
    silent.close()
