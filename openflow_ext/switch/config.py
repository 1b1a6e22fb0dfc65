"""The [switch] section of the configuration file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from pydantic import Field

from openflow_ext.settings import Section
from openflow_ext.switch.dataplane import PortSettings
from openflow_ext.wire import Framing, MarkMode


def _default_rundir() -> Path:
    return Path(os.environ.get("OVS_RUNDIR", "/var/run/openvswitch"))


class SwitchSettings(Section):
    """What ``weir switch`` runs with; its options overrule these."""

    name: str = Field("weir", pattern=r"^[A-Za-z0-9_-]{1,32}$", description="of the data plane and its pins")
    bridges: tuple[str, ...] = Field((), description="the bridges to extend")
    controllers: tuple[str, ...] = Field(
        (), description="tcp:HOST[:PORT], ssl:HOST[:PORT] or unix:PATH; none: those that the bridge has"
    )
    private_key: Path | None = Field(None, description="for ssl: controllers; none: Open vSwitch's (set-ssl)")
    certificate: Path | None = Field(None, description="the switch's own, for ssl: controllers")
    ca_certificate: Path | None = Field(None, description="of who signed the controllers' certificates")
    rundir: Path = Field(default_factory=_default_rundir, description="Open vSwitch's run directory")
    max_flows: int = Field(1_000_000, ge=1, description="TCP flows that the data plane can hold, 0.3 KB each")
    assumed_scale: int | None = Field(
        None, ge=0, le=14, description="window scale of flows whose handshake was not seen; none: leave them"
    )
    idle_s: float = Field(
        1.0, ge=0, allow_inf_nan=False, description="a flow without payload for so long leaves N_i; 0: never"
    )
    count: Literal["flows", "simple"] = Field(
        "flows", description='"simple": N_i is the plain integer of SCCP, section III.A, without flow state'
    )
    mark_pkts: int = Field(
        0,
        ge=0,
        description="mark ECN-capable packets that join a longer queue; a controller may overrule it; 0: no",
    )
    framing: Framing = Field(
        "experimenter", description='"native": BUF_ALARM and BUF_NORMAL as message types, in OpenFlow 1.3'
    )

    @property
    def port_settings(self) -> PortSettings:
        """What holds at a port until a controller changes it."""
        if not self.mark_pkts:
            return PortSettings()
        return PortSettings(mark_mode=MarkMode.STEP, mark_min_pkts=self.mark_pkts)
