"""The [switch] section of the configuration file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from openflow_ext.switch.dataplane.interface import PortSettings
from openflow_ext.wire import Framing, MarkMode
from weir_base.settings import Section


def _default_rundir() -> Path:
    return Path(os.environ.get("OVS_RUNDIR", "/var/run/openvswitch"))


_LEAST_PACKET_INS_PER_S = 100
"""The least limit that Open vSwitch accepts."""


def _checked_rate(rate: int) -> int:
    """Raises ValueError if Open vSwitch would refuse the limit."""
    if 0 < rate < _LEAST_PACKET_INS_PER_S:
        raise ValueError(f"Open vSwitch accepts no limit below {_LEAST_PACKET_INS_PER_S}; 0 is no limit")
    return rate


class SwitchSettings(Section):
    """The settings of ``weir switch``. Its options override them."""

    name: str = Field(
        "weir",
        pattern=r"^[A-Za-z0-9_-]{1,32}$",
        description="name of the data plane and of its folder below /sys/fs/bpf",
    )
    bridges: tuple[str, ...] = Field((), description="the bridges that the agent extends")
    controllers: tuple[str, ...] = Field(
        (), description="tcp:HOST[:PORT], ssl:HOST[:PORT] or unix:PATH; none: the bridge's own controllers"
    )
    private_key: Path | None = Field(
        None, description="private key for ssl: controllers; none: the files of ovs-vsctl set-ssl"
    )
    certificate: Path | None = Field(None, description="the switch's certificate for ssl: controllers")
    ca_certificate: Path | None = Field(
        None, description="certificate of the CA that signed the controllers' certificates"
    )
    check_host_names: bool | None = Field(
        None,
        description="whether the certificate of an ssl: controller must name its host or address; "
        "none: yes, but no with the files of ovs-vsctl set-ssl, whose certificates name no host",
    )
    rundir: Path = Field(default_factory=_default_rundir, description="Open vSwitch's run directory")
    max_flows: int | None = Field(
        None,
        ge=1,
        description="TCP flows that the data plane can track; each takes 0.3 KB of memory; "
        "none: about 1 % of the memory, 65,536 to a million flows",
    )
    assumed_scale: int | None = Field(
        None,
        ge=0,
        le=14,
        description="window scale of flows whose handshake was not seen; none: do not clamp them",
    )
    idle_s: float = Field(
        1.0,
        ge=0,
        allow_inf_nan=False,
        description="a flow that sends no payload for this time in seconds leaves N_i; 0: never",
    )
    count: Literal["flows", "simple"] = Field(
        "flows",
        description='"flows": N_i counts live flows; "simple": the plain integer of SCCP, section III.A, '
        "which each SYN and FIN changes; segments are not fitted",
    )
    mark_pkts: int = Field(
        0,
        ge=0,
        description="mark ECN-capable packets that join a longer queue; a controller can override it; 0: no",
    )
    mark_all_pkts: int = Field(
        0,
        ge=0,
        description="mark all ECN-capable packets from this queue length on, and from `mark_pkts` on a share "
        "that rises linearly (the thresholds of DCUDP); 0: all beyond `mark_pkts`",
    )
    packet_ins_per_s: Annotated[int, AfterValidator(_checked_rate)] = Field(
        1000,
        ge=0,
        le=1_000_000,
        description="limit of packet-ins per second to each controller, which Open vSwitch divides evenly "
        "among the ports that cause them; at least 100, or 0 for no limit. A limit of the bridge's own "
        "controllers is kept",
    )
    mode: Literal["act", "observe"] = Field(
        "act",
        description='"observe": everything is counted and shown, and no packet is changed: no window is '
        "lowered, no SYN fitted, no packet marked",
    )
    framing: Framing = Field(
        "experimenter", description='"native": BUF_ALARM and BUF_NORMAL are message types of OpenFlow 1.3'
    )

    @model_validator(mode="after")
    def _check_marks(self) -> SwitchSettings:
        if self.mark_all_pkts and not 0 < self.mark_pkts < self.mark_all_pkts:
            raise ValueError(
                f"mark_all_pkts is {self.mark_all_pkts} and mark_pkts is {self.mark_pkts}: want "
                f"0 < mark_pkts < mark_all_pkts"
            )
        return self

    @property
    def port_settings(self) -> PortSettings:
        """The settings of each port until a controller changes them."""
        if not self.mark_pkts:
            return PortSettings()
        if not self.mark_all_pkts:
            return PortSettings(mark_mode=MarkMode.STEP, mark_min_pkts=self.mark_pkts)
        return PortSettings(
            mark_mode=MarkMode.RAMP, mark_min_pkts=self.mark_pkts, mark_max_pkts=self.mark_all_pkts
        )
