"""The Prometheus metrics of switch ports, from the newest samples."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from telemetry_app.core import PortSample
from weir_base.port_metrics import PortMetrics


class PortCollector(Collector):
    """Collects the newest sample of every port of every connected switch."""

    def __init__(self) -> None:
        self._newest: dict[int, tuple[PortSample, ...]] = {}

    def take(self, dpid: int, samples: tuple[PortSample, ...]) -> None:
        """Replace a switch's samples. No samples: the switch is gone."""
        if samples:
            self._newest[dpid] = samples
        else:
            self._newest.pop(dpid, None)

    def collect(self) -> Iterator[Metric]:
        metrics = PortMetrics()
        for samples in list(self._newest.values()):
            for sample in samples:
                port, counters = sample.port, sample.counters
                metrics.add(
                    f"{port.dpid:016x}", port.port_no, sample.name, counters.alarm_up, counters.values()
                )
        return metrics.families()
