"""Flows whose window holds one segment, and whose receiver Linux takes for interactive."""

from __future__ import annotations

from dataclasses import replace

from openflow_ext.switch.dataplane.interface import PortSettings
from openflow_ext.switch.dataplane.rules import Rule, TcpMatch, WindowOp
from tests.support.data_plane.bench import PORT, Bench, reverse
from tests.support.data_plane.packets import Offer, Segment

MSS = 1408
ROOM_FOR_ONE = 2000
"""Bytes of a queue that holds a segment, not two."""
_CAPACITY_BPS = 100_000_000


def share_fairly(bench: Bench) -> None:
    """The rules of SCCP."""
    bench.count_by_flags()
    for version in (4, 6):
        bench.put(Rule(1, 1, 0, TcpMatch(ip_version=version), WindowOp.FAIR_SHARE))


def make_interactive(bench: Bench, local: Segment, stamped: bool = False) -> None:
    """Open a flow to ``local``, whose host then asks for something. The answer begins at ``local.ack``."""
    bench.plane.configure(PORT, PortSettings(common_rtt_us=10_000), _CAPACITY_BPS, 10**7)
    before = replace(local, ack=(local.ack - MSS) % 2**32)
    bench.handshake(before, Offer(timestamps=stamped), Offer(timestamps=stamped))
    bench.egress(replace(reverse(before), payload=bytes(MSS)))
    bench.ingress(replace(local, options=b"", payload=b""))  # a large window, so that no small one follows
    bench.plane.configure(PORT, PortSettings(common_rtt_us=10), _CAPACITY_BPS, ROOM_FOR_ONE)
    bench.ingress(replace(local, options=b"", payload=b"?"))
