"""The ``[fabric]`` section."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fabric_app.core import Options
from flowdb.flow import NS_PER_S
from openflow_ext.settings import Section


class FabricSettings(Section):
    """How flows get their paths, how links are watched, and how much is remembered.

    ``mode``: ``proactive``: routes to every host beforehand, no packet waits; ``reactive``: a SYN waits until
    its path is set up, as in the SDTCP paper. ``entry_idle_s``: how long a flow's entries outlive its last
    packet in reactive mode. ``report_ms``: the longest that a switch keeps a flow report;
    ``report_active_s``: how often it tells of an active flow.
    ``lldp_interval_s``: how often links are probed; ``lldp_lost_after`` probes without an echo end one.
    ``settle_s``: how long a new port is watched for a switch behind it before anything is flooded there.
    """

    mode: Literal["proactive", "reactive"] = "proactive"
    entry_idle_s: int = Field(default=60, ge=1, le=3600)
    report_ms: int = Field(default=10, ge=0, le=10_000)
    report_active_s: float = Field(default=1.0, ge=0.1, le=3600)
    lldp_interval_s: float = Field(default=0.5, ge=0.05, le=60)
    lldp_lost_after: int = Field(default=6, ge=2, le=100)
    settle_s: float = Field(default=0.5, ge=0.05, le=60)
    max_hosts: int = Field(default=16_384, ge=1)
    max_connections: int = Field(default=500_000, ge=1)

    @property
    def options(self) -> Options:
        """What of it the core needs."""
        return Options(
            reactive=self.mode == "reactive",
            entry_idle_s=self.entry_idle_s,
            lldp_interval_ns=round(self.lldp_interval_s * NS_PER_S),
            lldp_lost_after=self.lldp_lost_after,
            settle_ns=round(self.settle_s * NS_PER_S),
            max_hosts=self.max_hosts,
            max_connections=self.max_connections,
        )
