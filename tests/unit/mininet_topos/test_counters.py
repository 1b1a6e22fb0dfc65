"""Counters of TCP and the drops inside Open vSwitch."""

from __future__ import annotations

from mininet_topos.measurement.counters import Snapshot, parse_proc_net


def test_counters_of_proc_net_are_parsed() -> None:
    text = "Tcp: RtoMin RetransSegs\nTcp: 200 7\nTcpExt: TCPTimeouts TCPLossProbes\nTcpExt: 3 4\n"
    assert parse_proc_net(text) == {"RtoMin": 200, "RetransSegs": 7, "TCPTimeouts": 3, "TCPLossProbes": 4}


def _snapshot(queue_drops: int = 0, **tcp: int) -> Snapshot:
    return Snapshot({"OutSegs": 0, "InSegs": 0, "RetransSegs": 0} | tcp, queue_drops, 0, 0)


def test_ovs_drops_are_segments_that_no_host_and_no_queue_counted() -> None:
    # Linux counts retransmissions apart from OutSegs: 100 + 30 left, 110 came, 12 met a full queue
    assert _snapshot(12, OutSegs=100, RetransSegs=30, InSegs=110).ovs_drops == 8
    assert _snapshot(0, OutSegs=100, InSegs=101).ovs_drops == 0
