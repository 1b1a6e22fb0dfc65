"""Sampling in a real controller process with all apps, under both engines, against a scripted switch."""

import json
import time
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from flowdb.models import PortSampleRow
from openflow_ext import wire
from tests.unit.database import rows, wait_for
from tests.unit.engines import controller, free_port
from tests.unit.scripted_switch import ScriptedSwitch
from tests.unit.test_telemetry import a_record

LISTENER = "tests.unit.sample_listener"


class CountingSwitch(ScriptedSwitch):
    """Answers each request for port counters in ``parts``; none: it keeps silent."""

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
    """All apps, with figures of both controllers; ``process.port`` and the like beside it."""
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


def told(process):
    """The events that the listener got."""
    file = process.folder / "samples"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def figures(port):
    """What a controller serves: (figure, port's name) -> value."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        return {(s.name, s.labels.get("name")): s.value for family in families for s in family.samples}


def test_one_request_serves_all(process):
    """Events, rows, both controllers' figures; and a switch that keeps silent beside."""
    switch = CountingSwitch(process.port, parts=((1, 2), (3,)))
    silent = CountingSwitch(process.port, dpid=2)
    wait_for(lambda: len(told(process)) >= 10)
    samples = told(process)
    assert [event["dpid"] for event in samples] == [1] * len(samples)
    assert [event["samples"] for event in samples] == [
        [[port_no, "p", n_i] for port_no in (1, 2, 3)] for n_i in range(1, len(samples) + 1)
    ], "one event for each request, all parts in it"
    assert switch.asked_at[9] - switch.asked_at[0] > 6 * 0.2, "asked once, though three apps want it"
    assert len(silent.asked_at) == 1
    for port in process.metrics:
        found = figures(port)
        assert found["weir_port_n_i", "p"] >= 10
        assert found["weir_flowdb_rows_lost", None] == 0
    wait_for(lambda: len(rows(process.folder / "weir.db", PortSampleRow)) >= 30)
    assert {row.port_no for row in rows(process.folder / "weir.db", PortSampleRow)} == {1, 2, 3}
    switch.close()
    wait_for(lambda: told(process)[-1] == {"dpid": 1, "samples": []})
    wait_for(lambda: ("weir_port_n_i", "p") not in figures(process.metrics[0]))
    silent.close()
