"""A controller's figures for Prometheus: its switches' ports and its database, and where they are served.

Each controller has a registry of its own, with what it adds, and serves it only where its settings say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from flowdb.db import FlowDb
from openflow_ext.wire import PortCountersFlags
from telemetry_app.core import PortSample

LABELS = ("dpid", "port_no", "name")
GAUGES = {
    "n_i": "Flows open through the port, but those that have been idle for long (N_i).",
    "fair_share_bytes": "The window of each flow that sends just now; those of N_i that wait have no part.",
    "capacity_bps": "What the port can carry, in bit/s.",
    "queue_pkts": "Packets in the port's queue.",
    "queue_bytes": "Bytes in the port's queue.",
    "queue_max_pkts": "The longest that the port's queue has been, in packets.",
}
COUNTERS = {
    "alarms": "Alarms that the port raised.",
    "acks_seen": "ACKs whose window was looked at.",
    "clamped": "ACKs whose window was lowered.",
    "marked": "Packets that the port marked.",
    "drops": "Packets that the port dropped.",
    "unscaled": "ACKs left alone, for their flow's window scale is unknown.",
    "untracked": "Flows not counted, for the flow table was full.",
}


class PortFigures(Collector):
    """The newest sample of every port of every switch that is here."""

    def __init__(self) -> None:
        self._newest: dict[int, tuple[PortSample, ...]] = {}

    def take(self, dpid: int, samples: tuple[PortSample, ...]) -> None:
        """A switch's new samples in place of its old; none: it is gone."""
        if samples:
            self._newest[dpid] = samples
        else:
            self._newest.pop(dpid, None)

    def collect(self) -> Iterator[Metric]:
        alarm = GaugeMetricFamily("weir_port_alarm", "1: the port's queue is too long.", labels=LABELS)
        gauges = {
            name: GaugeMetricFamily(f"weir_port_{name}", text, labels=LABELS) for name, text in GAUGES.items()
        }
        counts = {
            name: CounterMetricFamily(f"weir_port_{name}", text, labels=LABELS)
            for name, text in COUNTERS.items()
        }
        families: dict[str, Any] = gauges | counts
        for samples in list(self._newest.values()):
            for sample in samples:
                of = (f"{sample.port.dpid:016x}", str(sample.port.port_no), sample.name)
                alarm.add_metric(of, bool(sample.counters.flags & PortCountersFlags.ALARM_UP))
                for name, family in families.items():
                    value = getattr(sample.counters, name)
                    if value or name != "fair_share_bytes":  # 0: the port gives none
                        family.add_metric(of, value)
        yield from (alarm, *families.values())


class Figures:
    """What every controller tells. ``section``: of the settings that say where."""

    def __init__(self, section: str, flowdb: FlowDb) -> None:
        self.registry = CollectorRegistry()
        self.ports = PortFigures()
        self.registry.register(self.ports)
        self._section = section
        self.gauge("flowdb_flows", "flows known and open", lambda: len(flowdb.index))
        self.gauge("flowdb_rows_waiting", "rows that wait to be written", lambda: flowdb.counters.pending)
        self.gauge("flowdb_lag_seconds", "wait of the oldest of them", lambda: flowdb.counters.lag_s)
        self.gauge("flowdb_rows_lost", "rows refused or dropped", lambda: flowdb.counters.lost)

    def gauge(self, name: str, text: str, ask: Callable[[], Any]) -> None:
        """A figure that is asked for when Prometheus asks."""
        Gauge(f"weir_{name}", text, registry=self.registry).set_function(ask)

    def serve_or_exit(self, address: str) -> None:
        """Answer Prometheus at ``HOST:PORT``; where nothing can listen there, end the process and say so."""
        host, _, port = address.rpartition(":")
        try:
            start_http_server(int(port), host.strip("[]"), self.registry)
        except (OSError, OverflowError) as error:
            where = f"[{self._section}] metrics"
            raise SystemExit(f"weir: {where}: cannot listen on {address}: {error}") from error
