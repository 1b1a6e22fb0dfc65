"""SCCP's own figures for Prometheus: the common RTTs that ports were given by measurement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from flowdb.flow import PortKey
from sccp_app.shares import Shares

LABELS = ("dpid", "port_no")


class ShareFigures(Collector):
    """The ports whose common RTT is not the setting, as they are now."""

    def __init__(self, shares: Shares, capacities_bps: Mapping[PortKey, int]) -> None:
        self._shares = shares
        self._capacities_bps = capacities_bps

    def collect(self) -> Iterator[Metric]:
        rtt = GaugeMetricFamily(
            "weir_sccp_common_rtt_us", "The common RTT; 0: nothing is clamped.", labels=LABELS
        )
        handshake = GaugeMetricFamily(
            "weir_sccp_handshake_us", "The median of the port's last handshakes.", labels=LABELS
        )
        overshoot = GaugeMetricFamily(
            "weir_sccp_overshoot_bytes", "What of the queue the overshoot takes.", labels=LABELS
        )
        for share in list(self._shares):
            of = (f"{share.port.dpid:016x}", str(share.port.port_no))
            rtt.add_metric(of, share.common_rtt_us)
            handshake.add_metric(of, share.median_us)
            overshoot.add_metric(of, share.buffer_bytes(self._capacities_bps.get(share.port, 0)))
        yield from (rtt, handshake, overshoot)
