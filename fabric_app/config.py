"""The ``[fabric]`` section."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fabric_app.core import Options
from flowdb.flow import NS_PER_S
from weir_base.settings import Section


class FabricSettings(Section):
    """How flows get their paths, how links are probed, and how much is remembered."""

    mode: Literal["proactive", "reactive"] = Field(
        "proactive",
        description='"proactive": every switch has routes to every host in advance. "reactive": a SYN waits '
        "until its path is set up, as in the SDTCP paper",
    )
    entry_idle_s: int = Field(
        60, ge=1, le=3600, description="idle timeout of a flow's entries in reactive mode, in seconds"
    )
    report_ms: int = Field(
        10, ge=0, le=10_000, description="longest time for which a switch holds back a flow report, in ms"
    )
    report_active_s: float = Field(
        1.0, ge=0.1, le=3600, description="seconds between two reports of the same active flow"
    )
    lldp_interval_s: float = Field(
        0.5, ge=0.05, le=60, description="seconds between two LLDP probes of a link"
    )
    lldp_lost_after: int = Field(
        6, ge=2, le=100, description="number of unanswered probes after which a link counts as lost"
    )
    settle_s: float = Field(
        0.5,
        ge=0.05,
        le=60,
        description="seconds for which a new port is checked for a switch behind it before it is flooded",
    )
    max_hosts: int = Field(16_384, ge=1, description="limit of hosts that are remembered")
    max_connections: int = Field(500_000, ge=1, description="limit of connections that are remembered")

    @property
    def options(self) -> Options:
        """The settings of the core."""
        return Options(
            reactive=self.mode == "reactive",
            entry_idle_s=self.entry_idle_s,
            lldp_interval_ns=round(self.lldp_interval_s * NS_PER_S),
            lldp_lost_after=self.lldp_lost_after,
            settle_ns=round(self.settle_s * NS_PER_S),
            max_hosts=self.max_hosts,
            max_connections=self.max_connections,
        )
