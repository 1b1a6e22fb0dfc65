"""SCCP's own Prometheus metrics: the common RTTs that follow from measurement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from flowdb.flow import PortKey
from sccp_app.common_rtt import CommonRtts

LABELS = ("dpid", "port_no")


class CommonRttMetrics(Collector):
    """The ports whose common RTT differs from the setting, as they are when Prometheus asks."""

    def __init__(self, common_rtts: CommonRtts, capacities_bps: Mapping[PortKey, int]) -> None:
        self._common_rtts = common_rtts
        self._capacities_bps = capacities_bps

    def collect(self) -> Iterator[Metric]:
        rtt = GaugeMetricFamily(
            "weir_sccp_common_rtt_us", "The common RTT in us; 0: the port does not clamp.", labels=LABELS
        )
        handshake = GaugeMetricFamily(
            "weir_sccp_handshake_us", "The median of the port's recent handshakes in us.", labels=LABELS
        )
        overshoot = GaugeMetricFamily(
            "weir_sccp_overshoot_bytes", "The part of the queue that the overshoot takes.", labels=LABELS
        )
        for port_rtt in list(self._common_rtts):
            labels = (f"{port_rtt.port.dpid:016x}", str(port_rtt.port.port_no))
            capacity_bps = self._capacities_bps.get(port_rtt.port, 0)
            rtt.add_metric(labels, port_rtt.common_rtt_us)
            handshake.add_metric(labels, port_rtt.median_us)
            overshoot.add_metric(labels, port_rtt.overshoot_bytes(capacity_bps))
        yield from (rtt, handshake, overshoot)
