"""The kernel datapath's form on real links, with a Linux bridge instead of Open vSwitch.

The hosts send super-packets with partial checksums. The bridge's ports complete the checksums and segment
the packets after the programs have run, so that the receiving host checks the result.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from openflow_ext.switch.dataplane.kernel import KernelDataPlane
from openflow_ext.switch.dataplane.rules import Rule, TcpMatch, WindowOp
from tests.support.data_plane.bridged_hosts import Host
from tests.support.data_plane.scripted_wire import MSS

pytestmark = pytest.mark.beside_others

BRIDGE, TCP_PORT = 1, 5001
BYTES = 1 << 20
WINDOW_BYTES = 8 * MSS
TCP_INFO = 11
SND_WND = struct.Struct("228xI")  # of struct tcp_info, since Linux 5.4


@pytest.fixture
def plane(hosts: tuple[Host, Host]) -> Iterator[KernelDataPlane]:
    """The programs on both ports; every window is lowered to WINDOW_BYTES."""
    plane = KernelDataPlane(f"weir-kernel-form-{os.getpid()}", max_flows=1000)
    try:
        for number, host in enumerate(hosts, 1):
            plane.attach(host.ifindex, host.port, BRIDGE, number, kernel_datapath=True)
        plane.put(BRIDGE, Rule(0, 1, 0, TcpMatch(), WindowOp.SET_WINDOW, WINDOW_BYTES))
        yield plane
    finally:
        plane.destroy()


def send(sender: socket.socket, receiver: socket.socket) -> None:
    """BYTES that arrive as they were."""
    data = os.urandom(BYTES)
    with ThreadPoolExecutor(max_workers=1) as thread:
        sending = thread.submit(sender.sendall, data)
        got = bytearray()
        while len(got) < BYTES:
            got += receiver.recv(1 << 20)
        sending.result()
    assert got == data


def snd_wnd_of(end: socket.socket) -> int:
    """The peer's window as this end saw it last, in bytes."""
    (window,) = SND_WND.unpack(end.getsockopt(socket.IPPROTO_TCP, TCP_INFO, SND_WND.size))
    return int(window)


def test_windows_are_lowered_in_packets_with_partial_checksums(
    hosts: tuple[Host, Host], plane: KernelDataPlane
) -> None:
    client, server = hosts
    with server.socket() as listener, client.socket() as there:
        listener.bind((server.address, TCP_PORT))
        listener.listen()
        there.connect((server.address, TCP_PORT))
        back, _ = listener.accept()
        with back:
            send(there, back)
            packets = int(Path(f"/sys/class/net/{client.port}/statistics/rx_packets").read_text())
            segments = plane.counters(client.ifindex).acks_seen
            send(back, there)
            windows = [snd_wnd_of(end) for end in (there, back)]

    assert packets < BYTES // MSS <= segments, "super-packets, counted by their segments"
    assert all(WINDOW_BYTES - 512 <= window <= WINDOW_BYTES for window in windows)
    for host in hosts:
        assert plane.counters(host.ifindex).clamped > 0
        assert host.bad_checksums() == 0
