"""Keep-alives behind segments that leave alone (weir_keep_alive.h), and what a real host does."""

from __future__ import annotations

import os
import socket
import statistics
import struct
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mininet_topos.measurement.counters import parse_proc_net
from openflow_ext.switch.dataplane.interface import PortSettings
from openflow_ext.switch.dataplane.kernel import KernelDataPlane
from openflow_ext.switch.dataplane.rules import CountOp, Rule, TcpMatch, WindowOp
from openflow_ext.wire import PortConfigFlags
from tests.support.data_plane.bench import PORT, Bench, reverse
from tests.support.data_plane.bridged_hosts import Host, connection
from tests.support.data_plane.interactive import MSS, ROOM_FOR_ONE, make_interactive, share_fairly
from tests.support.data_plane.packets import ACK, FIN, PSH, Segment, sack, timestamps

pytestmark = pytest.mark.beside_others

LOCAL = Segment()
PAYLOAD = bytes(range(256)) * 4


@pytest.fixture
def fair(bench: Bench) -> Bench:
    """A data plane with the rules of SCCP."""
    share_fairly(bench)
    return bench


@pytest.mark.parametrize("stamped", [False, True])
@pytest.mark.parametrize("payload", [b"\x01", b"\xff", PAYLOAD, PAYLOAD[:-1]])
@pytest.mark.parametrize(
    "local",
    [
        replace(LOCAL, ack=MSS + 1),
        replace(LOCAL, ack=0),
        replace(LOCAL, ack=MSS + 1, vlans=(3,)),
        replace(LOCAL, ack=MSS + 1, ip_options=b"\x01" * 8),
        replace(LOCAL, ack=MSS + 1, src="fd00::1", dst="fd00::2"),
        replace(LOCAL, ack=MSS + 1, src="fd00::1", dst="fd00::2", extensions=((60, bytes(7)),)),
    ],
    ids=["ipv4", "seq 0", "vlan", "ip options", "ipv6", "ipv6 extension"],
)
def test_a_keep_alive_is_one_octet_before_the_segment(
    fair: Bench, local: Segment, payload: bytes, stamped: bool
) -> None:
    make_interactive(fair, local, stamped)
    options = timestamps(7, 8) if stamped else b""
    data = replace(reverse(local), flags=ACK | PSH, options=options, payload=payload)
    before = replace(data, flags=ACK, seq=(data.seq - 1) % 2**32, payload=payload[:1])
    assert fair.egress(data) == before.pack()
    assert fair.counters.keep_alives == 1
    assert fair.egress(data) == data.pack(), "one is enough for a receiver that is interactive"


@pytest.mark.parametrize(
    "change",
    [
        {"flags": ACK | FIN},
        {"fragment_offset": 0x2000},
        {"seq": MSS + 2},
        {"seq": MSS},
        {"options": sack(3, 4)},
    ],
    ids=["FIN", "fragment", "a segment before is missing", "sent again", "another option"],
)
def test_no_keep_alive_follows_a_segment_if_it_may_be_wrong(fair: Bench, change: dict[str, Any]) -> None:
    local = replace(LOCAL, ack=MSS + 1)
    make_interactive(fair, local)
    data = replace(reverse(local), payload=PAYLOAD, **change)
    assert len(fair.egress(data)) == len(data.pack())


def test_no_keep_alive_follows_if_the_port_may_not_push(fair: Bench) -> None:
    local = replace(LOCAL, ack=MSS + 1)
    make_interactive(fair, local)
    omit = PortSettings(common_rtt_us=10, omits=int(PortConfigFlags.OMIT_PSH))
    fair.plane.configure(PORT, omit, 100_000_000, ROOM_FOR_ONE)
    data = replace(reverse(local), payload=PAYLOAD)
    assert fair.egress(data) == data.pack()


@pytest.fixture
def sccp(hosts: tuple[Host, Host]) -> Iterator[KernelDataPlane]:
    """SCCP on the port of the host that asks."""
    plane = KernelDataPlane(f"weir-keep-alive-{os.getpid()}", max_flows=1000)
    try:
        plane.attach(hosts[0].ifindex, hosts[0].port, 1, 1, kernel_datapath=True)
        for version in (4, 6):
            plane.put(1, Rule(1, 1, 0, TcpMatch(ip_version=version), WindowOp.FAIR_SHARE))
            syn = TcpMatch(ip_version=version, flags=2, flags_mask=2)
            plane.put(1, Rule(1, 100, 0, syn, count_op=CountOp.INCREMENT_NI))
        yield plane
    finally:
        plane.destroy()


def received(end: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        data += end.recv(length - len(data))
    return data


def query(ends: tuple[socket.socket, socket.socket]) -> float:
    """Ask for 10 KB. Returns the time that it took, in seconds."""
    there, back = ends
    answer, began_s = os.urandom(10_000), time.monotonic()
    there.sendall(b"query")
    received(back, len(b"query"))
    back.sendall(answer)
    assert received(there, len(answer)) == answer
    return time.monotonic() - began_s


def counter(host: Host, name: str) -> int:
    return parse_proc_net(host.space.run(lambda: Path("/proc/thread-self/net/netstat").read_text()))[name]


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
@pytest.mark.parametrize("follows", [True, False])
def test_a_real_host_acknowledges_at_once(
    hosts: tuple[Host, Host], sccp: KernelDataPlane, family: int, follows: bool
) -> None:
    """Queries at once, with windows of one segment. Linux delays an ACK by 40 ms."""
    omits = PortConfigFlags.NONE if follows else PortConfigFlags.OMIT_TWO_SEGMENTS
    settings = PortSettings(common_rtt_us=10, omits=int(omits))
    sccp.configure(hosts[0].ifindex, settings, 100_000_000, 10**6)
    with connection(*hosts, 5001, family) as ends:
        query(ends)  # full segments, and windows of more than two
        sccp.configure(hosts[0].ifindex, settings, 100_000_000, ROOM_FOR_ONE)
        took_s = [query(ends) for _ in range(12)]
        resent = struct.unpack_from("I", ends[1].getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104), 100)
    assert (statistics.median(took_s) < 0.03) is follows
    assert (counter(hosts[0], "TCPDSACKOldSent") > 0) is follows
    assert hosts[0].bad_checksums() == 0
    assert resent == (0,)
