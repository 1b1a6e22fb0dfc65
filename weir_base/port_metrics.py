"""Ports as Prometheus metrics, for controllers and for the dashboard: both give the same names and labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from weir_base.port_counters import PORT_COUNTERS

LABELS = ("dpid", "port_no", "name")


class PortMetrics:
    """The metric families ``weir_port_alarm`` and ``weir_port_<counter>``."""

    def __init__(self) -> None:
        self._alarm = GaugeMetricFamily("weir_port_alarm", "1: the port's queue is congested.", labels=LABELS)
        self._families = {
            name: (GaugeMetricFamily if counter.kind == "gauge" else CounterMetricFamily)(
                f"weir_port_{name}", counter.help, labels=LABELS
            )
            for name, counter in PORT_COUNTERS.items()
        }

    def add(self, dpid: str, port_no: int, name: str, alarm_up: bool, values: Mapping[str, int]) -> None:
        """Add a port. ``values``: its known counters by name."""
        labels = (dpid, str(port_no), name)
        self._alarm.add_metric(labels, alarm_up)
        for counter, value in values.items():
            if value or not PORT_COUNTERS[counter].absent_if_zero:
                self._families[counter].add_metric(labels, value)

    def families(self) -> Iterator[Metric]:
        """All metric families, also those without any port."""
        yield self._alarm
        yield from self._families.values()
