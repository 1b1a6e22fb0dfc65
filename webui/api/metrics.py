"""``/metrics`` for Prometheus: the network's figures as the database has them, and the dashboard's own."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from flask import Blueprint, Response
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from flowdb.engine import FlowDbError
from webui.parts import Parts, parts
from webui.queries import network
from webui.queries.ports import ports
from webui.views import Port, Totals

blueprint = Blueprint("metrics", __name__)
OF_TOTALS = {
    "switches_up": "Switches that are connected.",
    "live_flows": "Flows that are open.",
    "clamps": "Clamps that stand.",
    "alarms_up": "Ports whose queue is too long.",
    "controllers": "Controllers that were heard of lately.",
}
OF_PORT = {
    "queue_pkts": "Packets in the port's queue.",
    "queue_bytes": "Bytes in the port's queue.",
    "n_i": "Flows open through the port, but those that have been idle for long (N_i).",
    "fair_share_bytes": "The window of each flow that sends just now; those of N_i that wait have no part.",
    "capacity_bps": "What the port can carry, in bit/s.",
    "clamps": "Clamps that stand at the port.",
}


@blueprint.get("/metrics")
def metrics() -> Response:
    registry = CollectorRegistry()
    registry.register(_Figures(parts()))
    return Response(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


class _Figures:
    """What a scrape gets. A database that cannot be read is a figure too: ``weir_database_up`` 0."""

    def __init__(self, of: Parts) -> None:
        self._of = of

    def collect(self) -> Iterator[Metric]:
        yield _gauge("weir_live_viewers", "Live pages that are open.", self._of.hub.viewers)
        begun, now_ns = time.perf_counter(), time.time_ns()
        try:
            with self._of.database.reading() as session:
                known = ports(session, now_ns)
                totals = network.totals(session, known, now_ns)
        except FlowDbError:
            yield _gauge("weir_database_up", "Whether the database can be read.", 0)
            return
        yield _gauge("weir_database_up", "Whether the database can be read.", 1)
        seconds = time.perf_counter() - begun
        yield _gauge("weir_scrape_seconds", "How long the figures took to read.", seconds)
        yield from _of_totals(totals)
        yield from _of_ports(known)


def _of_totals(totals: Totals) -> Iterator[Metric]:
    for name, text in OF_TOTALS.items():
        yield _gauge(f"weir_{name}", text, getattr(totals, name))


def _of_ports(known: Sequence[Port]) -> Iterator[Metric]:
    labels = ("dpid", "port_no", "name")
    alarm = GaugeMetricFamily("weir_port_alarm", "1: the port's queue is too long.", labels=labels)
    drops = CounterMetricFamily("weir_port_drops", "Packets that the port dropped.", labels=labels)
    figures = {
        name: GaugeMetricFamily(f"weir_port_{name}", text, labels=labels) for name, text in OF_PORT.items()
    }
    for port in known:
        of = (port.dpid, str(port.port_no), port.name)
        alarm.add_metric(of, port.alarm_up)
        if port.drops is not None:
            drops.add_metric(of, port.drops)
        for name, figure in figures.items():
            if (value := getattr(port, name)) is not None:
                figure.add_metric(of, value)
    yield from (alarm, drops, *figures.values())


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)
