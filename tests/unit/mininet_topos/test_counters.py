"""Counters of TCP and the drops inside Open vSwitch."""

from __future__ import annotations

from dataclasses import replace

from mininet_topos.measurement.counters import Snapshot, datagrams, parse_proc_net


def test_counters_of_proc_net_are_parsed() -> None:
    text = "Tcp: RtoMin RetransSegs\nTcp: 200 7\nTcpExt: TCPTimeouts TCPLossProbes\nTcpExt: 3 4\n"
    assert parse_proc_net(text) == {"RtoMin": 200, "RetransSegs": 7, "TCPTimeouts": 3, "TCPLossProbes": 4}


def _snapshot(queue_drops: int = 0, **tcp: int) -> Snapshot:
    return Snapshot({"OutSegs": 0, "InSegs": 0, "RetransSegs": 0} | tcp, queue_drops, 0, 0)


def test_ovs_drops_are_segments_that_no_host_and_no_queue_counted() -> None:
    # Linux counts retransmissions apart from OutSegs: 100 + 30 left, 110 came, 12 met a full queue
    assert _snapshot(12, OutSegs=100, RetransSegs=30, InSegs=110).ovs_drops == 8
    assert _snapshot(0, OutSegs=100, InSegs=101).ovs_drops == 0


def test_datagrams_count_as_segments_do() -> None:
    both = replace(_snapshot(12, OutSegs=100, InSegs=95), udp_sent=50, udp_received=41)
    assert both.ovs_drops == 2
    assert both.since(replace(both, udp_sent=40, udp_received=40)).udp_sent == 10


def test_datagrams_that_no_socket_took_were_received_and_udp_lite_is_another_protocol() -> None:
    names = "InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors"
    text = f"Tcp: OutSegs\nTcp: 9\nUdp: {names}\nUdp: 40 3 2 50 2\nUdpLite: {names}\nUdpLite: 0 0 0 0 0\n"
    assert datagrams(text) == (50, 45)
