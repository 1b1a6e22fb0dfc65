"""The rate and queue of a port's egress, read from the real kernel."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections.abc import Iterator

import pytest

from openflow_ext.switch.dataplane.interface import NoShare
from openflow_ext.switch.dataplane.netlink import Netlink
from openflow_ext.switch.ovs import egress
from openflow_ext.switch.ovs.egress import DEFAULT_RATE_BPS, Egress, read_egresses

pytestmark = pytest.mark.beside_others

HTB = ("root handle 1: htb default 1", "parent 1: classid 1:1 htb rate 20mbit")
OVS_LINUX_HTB = (
    "root handle 1: htb default 1",
    "parent 1: classid 1:fffe htb rate 30mbit",
    "parent 1:fffe classid 1:1 htb rate 12kbit ceil 30mbit",
)
"""As Open vSwitch makes them for a QoS of type linux-htb: no class has a qdisc of its own."""
TX_QUEUE_PKTS = 66


def run(command: str) -> None:
    subprocess.run(command.split(), check=True, capture_output=True)


@pytest.fixture
def port() -> Iterator[str]:
    name = f"we{os.getpid() % 100000}"
    run(f"ip link add {name} type veth peer name {name}p")
    run(f"ip link set {name}p up")
    run(f"ip link set {name} up txqueuelen {TX_QUEUE_PKTS}")
    yield name
    run(f"ip link del {name}")


@pytest.mark.parametrize(
    ("qdiscs", "expected"),
    [
        (("root pfifo limit 77",), Egress(DEFAULT_RATE_BPS, 77 * 1514)),
        (("root bfifo limit 9999",), Egress(DEFAULT_RATE_BPS, 9999)),
        (("root tbf rate 1mbit burst 1600 limit 5000",), Egress(10**6, 5000)),
        ((*HTB, "parent 1:1 pfifo limit 40"), Egress(2 * 10**7, 40 * 1514)),
        ((*HTB, "parent 1:1 bfifo limit 150000"), Egress(2 * 10**7, 150_000)),
        (OVS_LINUX_HTB, Egress(3 * 10**7, TX_QUEUE_PKTS * 1514)),
        ((), Egress(DEFAULT_RATE_BPS, 0, NoShare.QUEUE)),
    ],
)
@pytest.mark.parametrize("dump_from", [1, 50])
def test_rate_and_queue_are_read_from_each_kind_of_qdisc(
    port: str, qdiscs: tuple[str, ...], expected: Egress, dump_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of few ports each is asked for, and of many there is one dump."""
    monkeypatch.setattr(egress, "_DUMP_FROM_PORTS", dump_from)
    for qdisc in qdiscs:
        kind = "class" if "classid" in qdisc else "qdisc"
        run(f"tc {kind} add dev {port} {qdisc}")
    ifindex = socket.if_nametoindex(port)
    with contextlib.closing(Netlink()) as netlink:
        assert read_egresses(netlink, {ifindex: port}) == {ifindex: expected}
