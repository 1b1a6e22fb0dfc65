"""The Prometheus metrics of a controller app, and the HTTP server that offers them."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from app_base.stage import Declaration, Metric
from flowdb.db import FlowDb
from openflow_ext import registry


class AppMetrics:
    """Metrics of an app, of its database and of its OpenFlow sessions. Each app has its own ``registry``."""

    def __init__(self, declaration: Declaration, flowdb: FlowDb) -> None:
        self.registry = CollectorRegistry()
        self._section = declaration.name
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        self._histograms: dict[str, Histogram] = {}
        for metric in declaration.metrics:
            self._add(metric)
        self._add_flowdb(flowdb)
        self._add_openflow()

    def count(self, name: str, *labels: str, number: int = 1) -> None:
        """Add ``number`` to a declared counter."""
        counter = self._counters[name]
        (counter.labels(*labels) if labels else counter).inc(number)

    def observe(self, name: str, value: float) -> None:
        """Add a value to a declared histogram."""
        self._histograms[name].observe(value)

    def read_from(self, name: str, read: Callable[[], float]) -> None:
        """Have a declared gauge call ``read`` whenever Prometheus asks."""
        self._gauges[name].set_function(read)

    def serve_or_exit(self, address: str) -> None:
        """Answer Prometheus on ``HOST:PORT``; if that is impossible, end the process with one line."""
        host, _, port = address.rpartition(":")
        try:
            start_http_server(int(port), host.strip("[]"), self.registry)
        except (OSError, OverflowError) as error:
            where = f"[{self._section}] metrics"
            raise SystemExit(f"weir: {where}: cannot listen on {address}: {error}") from error

    def _add(self, metric: Metric) -> None:
        name = f"weir_{self._section}_{metric.name}"
        match metric.kind:
            case "counter":
                self._counters[metric.name] = Counter(
                    name, metric.help, metric.labels, registry=self.registry
                )
            case "gauge":
                self._gauges[metric.name] = Gauge(name, metric.help, metric.labels, registry=self.registry)
            case "histogram":
                buckets = metric.buckets or Histogram.DEFAULT_BUCKETS
                self._histograms[metric.name] = Histogram(
                    name, metric.help, metric.labels, buckets=buckets, registry=self.registry
                )

    def _add_flowdb(self, flowdb: FlowDb) -> None:
        readings: tuple[tuple[str, str, Callable[[], float]], ...] = (
            ("flows", "flows that are open", lambda: len(flowdb.index)),
            ("rows_waiting", "rows that wait to be written", lambda: flowdb.counters.pending),
            ("lag_seconds", "waiting time of the oldest of these rows", lambda: flowdb.counters.lag_s),
            ("rows_lost", "rows that were refused or dropped", lambda: flowdb.counters.lost),
        )
        for name, text, read in readings:
            Gauge(f"weir_flowdb_{name}", text, registry=self.registry).set_function(read)

    def _add_openflow(self) -> None:
        readings: tuple[tuple[str, str, Callable[[], float]], ...] = (
            ("dropped_messages", "malformed messages of switches, dropped", registry.malformed.total),
            ("ended_sessions", "sessions that the controller ended", registry.ended_sessions.total),
        )
        for name, text, read in readings:
            Gauge(f"weir_openflow_{name}", text, registry=self.registry).set_function(read)
