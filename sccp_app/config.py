"""The ``[sccp]`` section."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from openflow_ext.settings import Section
from sccp_app.core import PortPolicy
from sccp_app.shares import RttPolicy
from telemetry_app.config import MetricsAddress


class SccpSettings(Section):
    """SCCP's settings, for every port.

    ``common_rtt_us``: equation (1)'s delay, somewhat above the flows' own round trip; the paper has 300
    in simulation and 600 on a testbed of real hosts. ``common_rtt`` "measured": each port's own, the
    ``rtt_percentile`` of its flows' last 256 handshakes times ``rtt_headroom``, ``most_common_rtt_us`` at
    most; ``common_rtt_us`` holds until there have been 16. ``capacity_bps`` 0: the port's own rate.
    ``least_window_bytes`` 0: one MSS of the flow (section V); less suits only hosts that do without silly
    window avoidance. ``metrics``: where Prometheus may ask, "127.0.0.1:9466" say; none: nowhere.
    """

    common_rtt: Literal["fixed", "measured"] = "fixed"
    common_rtt_us: int = Field(default=600, ge=1, le=10_000_000)
    rtt_percentile: float = Field(default=90.0, gt=0, le=100)
    rtt_headroom: float = Field(default=1.5, ge=1, le=100)
    most_common_rtt_us: int = Field(default=2000, ge=1, le=10_000_000)
    capacity_bps: int = Field(default=0, ge=0, le=10**15)
    least_window_bytes: int = Field(default=0, ge=0, le=2**30)
    metrics: MetricsAddress | None = None

    @property
    def policy(self) -> PortPolicy:
        return PortPolicy(self.common_rtt_us, self.capacity_bps, self.least_window_bytes)

    @property
    def rtt_policy(self) -> RttPolicy:
        is_measured = self.common_rtt == "measured"
        head = self.rtt_percentile, self.rtt_headroom, self.most_common_rtt_us
        return RttPolicy(self.common_rtt_us, is_measured, *head)
