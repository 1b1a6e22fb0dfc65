"""The ``[fabric]`` section."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from app_base.scope import port_key
from app_base.settings import MetricsAddress, PortName
from fabric_app.core import Options
from fabric_app.host_tracking import HostLimits
from flowdb.flow import NS_PER_S
from weir_base.settings import Section


class FabricSettings(Section):
    """How flows get their paths, how links are probed, what a port may claim, and how much is remembered."""

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
    port_hosts: int = Field(
        256, ge=1, description="limit of hosts behind one edge port, for example virtual machines of a server"
    )
    port_new_hosts_per_s: int = Field(
        32, ge=1, le=100_000, description="limit of new hosts per second at one edge port"
    )
    port_packet_ins_per_s: int = Field(
        200,
        ge=1,
        le=100_000,
        description="limit of packet-ins per second from one port, without TCP segments: ARP, neighbour "
        "discovery, DHCP, LLDP",
    )
    port_segments_per_s: int = Field(
        1000,
        ge=1,
        le=100_000,
        description="limit of TCP segments per second from one port that the controller handles",
    )
    uplinks: tuple[PortName, ...] = Field(
        (),
        description="edge ports that lead to a network of others, as DPID:PORT: any number of hosts may be "
        "behind them, at most max_hosts",
    )
    dhcp_ports: tuple[PortName, ...] = Field(
        (),
        description="ports of trusted DHCP servers and relays, as DPID:PORT: DHCP answers from other ports "
        "teach no address. By default no port is trusted; hosts are then learnt from ARP alone",
    )
    host_idle_s: float = Field(
        300,
        ge=10,
        le=86_400,
        description="a host that is silent for this time in seconds is probed; without an answer it is "
        "forgotten 3 s later. A new host is probed after 5 s",
    )
    host_move_s: float = Field(
        1.0,
        ge=0.3,
        le=60,
        description="a host or an address moves to another port when it has not answered at its own for "
        "this time in seconds",
    )
    max_hosts: int = Field(16_384, ge=1, description="limit of hosts that are remembered")
    max_connections: int = Field(
        500_000,
        ge=1,
        description="limit of connections that are remembered; one switch can report 4/5 of them",
    )

    metrics: MetricsAddress | None = Field(
        None,
        description='HOST:PORT where Prometheus reads metrics, for example "127.0.0.1:9467"; none: nowhere',
    )

    @property
    def options(self) -> Options:
        """The settings of the core."""
        return Options(
            reactive=self.mode == "reactive",
            entry_idle_s=self.entry_idle_s,
            lldp_interval_ns=round(self.lldp_interval_s * NS_PER_S),
            lldp_lost_after=self.lldp_lost_after,
            settle_ns=round(self.settle_s * NS_PER_S),
            hosts=HostLimits(
                max_hosts=self.max_hosts,
                port_hosts=self.port_hosts,
                port_new_hosts_per_s=self.port_new_hosts_per_s,
                host_idle_ns=round(self.host_idle_s * NS_PER_S),
                host_move_ns=round(self.host_move_s * NS_PER_S),
                uplinks=frozenset(port_key(name) for name in self.uplinks),
            ),
            port_packet_ins_per_s=self.port_packet_ins_per_s,
            port_segments_per_s=self.port_segments_per_s,
            dhcp_ports=frozenset(port_key(name) for name in self.dhcp_ports),
            max_connections=self.max_connections,
        )
