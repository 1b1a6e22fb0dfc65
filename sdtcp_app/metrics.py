"""SDTCP's figures for Prometheus, in a registry of their own; served only where the settings say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from flowdb.db import FlowDb
from sdtcp_app.decisions import Decision, Lift, Punish

_LATENCIES_S = (0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.03, 0.1, 1.0)


@dataclass(frozen=True, slots=True)
class Sources:
    """What is asked when Prometheus asks: clamps in force, events that wait for the app."""

    clamps: Callable[[], int]
    events: Callable[[], int]


class Metrics:
    """Counted as things happen. ``alarms`` by outcome: decided, nothing, malformed."""

    def __init__(self, flowdb: FlowDb, sources: Sources, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self.alarms = self._counter("alarms", "BUF_ALARMs received", "outcome")
        text = "steps of switches that were taken over"
        self.reflexes = Counter("weir_sdtcp_reflexes", text, registry=self.registry)
        self.answers = self._counter("answers", "entries answered by their switch", "outcome")
        self.commands = self._counter("commands", "commands obeyed or refused", "outcome")
        self._decisions = self._counter("decisions", "flows chosen to be slowed", "equation")
        self._lifts = self._counter("lifts", "clamps lifted", "reason")
        self.latency = Histogram(
            "weir_sdtcp_alarm_to_flow_mod_seconds",
            "from an alarm's arrival at the app to its FLOW_MODs on their way",
            buckets=_LATENCIES_S,
            registry=self.registry,
        )
        self._gauge("sdtcp_clamps", "flows slowed down now", sources.clamps)
        self._gauge("sdtcp_events_waiting", "events that wait for the app", sources.events)
        self._gauge("flowdb_flows", "flows known and open", lambda: len(flowdb.index))
        self._gauge("flowdb_rows_waiting", "rows that wait to be written", lambda: flowdb.counters.pending)
        self._gauge("flowdb_lag_seconds", "wait of the oldest of them", lambda: flowdb.counters.lag_s)
        self._gauge("flowdb_rows_lost", "rows refused or dropped", lambda: flowdb.counters.lost)

    def decided(self, decision: Decision) -> None:
        """Count a decision that was carried out."""
        match decision:
            case Punish(equation=equation):
                self._decisions.labels(equation.name.lower()).inc()
            case Lift(reason=reason):
                self._lifts.labels(str(reason)).inc()

    def serve_or_exit(self, address: str) -> None:
        """Answer Prometheus at ``HOST:PORT``; where nothing can listen there, end the process and say so."""
        host, _, port = address.rpartition(":")
        try:
            start_http_server(int(port), host.strip("[]"), self.registry)
        except (OSError, OverflowError) as error:
            raise SystemExit(f"weir: [sdtcp] metrics: cannot listen on {address}: {error}") from error

    def _counter(self, name: str, text: str, label: str) -> Counter:
        return Counter(f"weir_sdtcp_{name}", text, [label], registry=self.registry)

    def _gauge(self, name: str, text: str, ask: Callable[[], Any]) -> None:
        Gauge(f"weir_{name}", text, registry=self.registry).set_function(ask)
