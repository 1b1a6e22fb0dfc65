"""Baselines: the transports that the papers compare with, and what each needs of hosts and switch.

Most are TCP with a congestion control. DCUDP and UDT have traffic programs of their own.

A congestion control is set for each socket (TCP_CONGESTION), so flows of several baselines can share a link.
Linux has no socket option for ECN without DCTCP: `net.ipv4.tcp_ecn` belongs to a host's network namespace.
Therefore a host uses ECN-TCP for all its flows or for none.
"""

from __future__ import annotations

from dataclasses import dataclass

from mininet_topos.experiments.plot_style import PlotStyle

TCP_PROGRAM = "weir-traffic"
DCUDP_PROGRAM = "weir-traffic-dcudp"
UDT_PROGRAM = "weir-traffic-udt"
ECN_OFF = 0
ECN_IF_ASKED = 2
"""Linux's default: a listener agrees to ECN; a connecting socket does not ask for it."""
ECN_ALWAYS = 1


@dataclass(frozen=True, slots=True)
class Baseline:
    """One transport.

    ``congestion_control``: its name for TCP_CONGESTION; empty: the transport is not TCP.
    ``tcp_ecn``: net.ipv4.tcp_ecn of the sockets' namespaces, at both ends.
    ``marked``: the switch has to mark packets.
    ``paced``: Adaptive Pacing, whose senders have to know the bottleneck and n (running/pacing.py).
    ``program``: the traffic program of its long and planned flows (native/). `make bpf` builds it only if
    the Debian ``package`` is installed; empty: it needs none.
    """

    name: str
    congestion_control: str
    style: PlotStyle
    tcp_ecn: int = ECN_OFF
    marked: bool = False
    paced: bool = False
    program: str = TCP_PROGRAM
    package: str = ""

    @property
    def is_tcp(self) -> bool:
        """Whether the kernel's TCP carries the flows."""
        return self.program == TCP_PROGRAM

    @property
    def is_ours(self) -> bool:
        """Whether the congestion control is one of Weir's, which the lab can load."""
        return self.congestion_control.startswith("weir_")


def _of_dctcp(name: str, congestion_control: str, style: PlotStyle, paced: bool = False) -> Baseline:
    """Return a transport of the DCTCP family. It asks for ECN by itself; other listeners must agree to it."""
    return Baseline(name, congestion_control, style, tcp_ecn=ECN_IF_ASKED, marked=True, paced=paced)


BASELINES = {
    baseline.name: baseline
    for baseline in (
        Baseline("reno", "reno", PlotStyle("plain TCP", "#D55E00", "-", "o")),
        Baseline("cubic", "cubic", PlotStyle("CUBIC", "#F0E442", ":", "v")),
        Baseline("bbr", "bbr", PlotStyle("BBR", "#999999", ":", "<")),
        Baseline(
            "ecn-tcp",
            "reno",
            PlotStyle("ECN-TCP", "#E69F00", ":", "D"),
            tcp_ecn=ECN_ALWAYS,
            marked=True,
        ),
        _of_dctcp("dctcp", "weir_dctcp", PlotStyle("DCTCP", "#CC79A7", (0, (5, 1)), "P")),
        _of_dctcp("dctcp-kernel", "dctcp", PlotStyle("DCTCP of the kernel", "#D37295", (0, (5, 1)), "x")),
        _of_dctcp("d2tcp", "weir_d2tcp", PlotStyle("D2TCP", "#AA4466", (0, (5, 1)), "<")),
        _of_dctcp("l2dct", "weir_l2dct", PlotStyle("L2DCT", "#7A5195", (0, (5, 1)), ">")),
        _of_dctcp("dctcp-plus", "weir_dctcp_plus", PlotStyle("DCTCP+", "#B15928", (0, (5, 1)), "^")),
        Baseline("ap-reno", "weir_ap_reno", PlotStyle("TCP, AP", "#8C564B", (0, (2, 1)), "o"), paced=True),
        *(
            _of_dctcp(f"ap-{base}", f"weir_ap_{base}", PlotStyle(label, colour, (0, (2, 1)), marker), True)
            for base, label, colour, marker in (
                ("dctcp", "DCTCP, AP", "#E377C2", "P"),
                ("d2tcp", "D2TCP, AP", "#BC80BD", "<"),
                ("l2dct", "L2DCT, AP", "#6A3D9A", ">"),
            )
        ),
        Baseline("dcudp", "", PlotStyle("DCUDP", "#1F77B4", "-", "*"), marked=True, program=DCUDP_PROGRAM),
        Baseline("udt", "", PlotStyle("UDT", "#7F7F7F", "-", "+"), program=UDT_PROGRAM, package="libudt-dev"),
    )
}
