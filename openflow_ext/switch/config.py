"""The [switch] section of the configuration file."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import Field

from openflow_ext.settings import Section


def _default_rundir() -> Path:
    return Path(os.environ.get("OVS_RUNDIR", "/var/run/openvswitch"))


class SwitchSettings(Section):
    """What ``weir switch`` runs with; its options overrule these."""

    name: str = Field("weir", pattern=r"^[A-Za-z0-9_-]{1,32}$", description="of the data plane and its pins")
    bridges: tuple[str, ...] = Field((), description="the bridges to extend")
    controllers: tuple[str, ...] = Field(
        (), description="tcp:HOST[:PORT] or unix:PATH; none: those that the bridge has"
    )
    rundir: Path = Field(default_factory=_default_rundir, description="Open vSwitch's run directory")
    max_flows: int = Field(1_000_000, ge=1, description="TCP flows that the data plane can hold")
    assumed_scale: int | None = Field(
        None, ge=0, le=14, description="window scale of flows whose handshake was not seen; none: leave them"
    )
