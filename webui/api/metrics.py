"""``/metrics`` for Prometheus: figures of the network, from the database, and of the dashboard itself."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from flask import Blueprint, Response
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from flowdb.engine import FlowDbError
from webui.access.guard import guard
from webui.queries import network
from webui.queries.ports import ports
from webui.services import Services, services
from webui.views import Port, Totals
from weir_base.port_metrics import LABELS, PortMetrics

blueprint = Blueprint("metrics", __name__)
TOTALS = {
    "switches_up": "Connected switches.",
    "live_flows": "Open flows.",
    "clamps": "Clamps in force.",
    "alarms_up": "Ports with an alarm.",
    "controllers": "Controllers that are alive.",
}


@blueprint.get("/metrics")
def metrics() -> Response:
    registry = CollectorRegistry()
    registry.register(_Figures(services()))
    return Response(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


class _Figures:
    """Collects the metrics of a scrape. If the database cannot be read, ``weir_database_up`` is 0."""

    def __init__(self, of: Services) -> None:
        self._services = of

    def collect(self) -> Iterator[Metric]:
        yield _gauge("weir_live_viewers", "Open live pages.", self._services.hub.viewers)
        refused = CounterMetricFamily("weir_web_refused", "Requests that were refused.", labels=("reason",))
        for reason, count in guard().refusals.counts.items():
            refused.add_metric((reason,), count)
        yield refused
        begun, database = time.perf_counter(), self._services.database
        try:
            with database.reading() as session:
                now_ns = database.now_ns(session)
                known = ports(session, now_ns)
                totals = network.totals(session, known, now_ns)
        except FlowDbError:
            yield _gauge("weir_database_up", "Whether the database can be read.", 0)
            return
        yield _gauge("weir_database_up", "Whether the database can be read.", 1)
        seconds = time.perf_counter() - begun
        yield _gauge("weir_scrape_seconds", "Time that the database took to read the metrics.", seconds)
        yield from _total_metrics(totals)
        yield from _port_metrics(known)


def _total_metrics(totals: Totals) -> Iterator[Metric]:
    for name, text in TOTALS.items():
        yield _gauge(f"weir_{name}", text, getattr(totals, name))


def _port_metrics(known: Sequence[Port]) -> Iterator[Metric]:
    clamps = GaugeMetricFamily("weir_port_clamps", "Clamps in force at the port.", labels=LABELS)
    metrics = PortMetrics()
    for port in known:
        clamps.add_metric((port.dpid, str(port.port_no), port.name), port.clamps)
        metrics.add(port.dpid, port.port_no, port.name, port.alarm_up, port.counters)
    yield from (*metrics.families(), clamps)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)
