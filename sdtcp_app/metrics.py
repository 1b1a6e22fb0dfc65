"""SDTCP's figures for Prometheus, beside those that every controller tells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import Counter, Histogram

from flowdb.db import FlowDb
from sdtcp_app.decisions import Decision, Lift, Punish
from telemetry_app.metrics import Figures

_LATENCIES_S = (0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.03, 0.1, 1.0)


@dataclass(frozen=True, slots=True)
class Sources:
    """What is asked when Prometheus asks: clamps in force, events that wait for the app."""

    clamps: Callable[[], int]
    events: Callable[[], int]


class Metrics(Figures):
    """Counted as things happen. ``alarms`` by outcome: decided, nothing, malformed."""

    def __init__(self, flowdb: FlowDb, sources: Sources) -> None:
        super().__init__("sdtcp", flowdb)
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
        self.gauge("sdtcp_clamps", "flows slowed down now", sources.clamps)
        self.gauge("sdtcp_events_waiting", "events that wait for the app", sources.events)

    def decided(self, decision: Decision) -> None:
        """Count a decision that was carried out."""
        match decision:
            case Punish(equation=equation):
                self._decisions.labels(equation.name.lower()).inc()
            case Lift(reason=reason):
                self._lifts.labels(str(reason)).inc()

    def _counter(self, name: str, text: str, label: str) -> Counter:
        return Counter(f"weir_sdtcp_{name}", text, [label], registry=self.registry)
