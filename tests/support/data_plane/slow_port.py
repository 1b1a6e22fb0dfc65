"""A port with a real queue: a veth interface with a slow HTB root."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import time
from collections.abc import Iterator

from openflow_ext.switch.dataplane.interface import QueueEvent
from openflow_ext.switch.dataplane.kernel import KernelDataPlane
from tests.support.waiting import wait_until

SLOW_BRIDGE = 1
K_PKTS = 10
RTT_US = 20_000
FRAME = bytes(6) + b"\x02" + bytes(5) + b"\x88\xb5" + bytes(1000)


def run(*command: str) -> None:
    """Run a command that must succeed."""
    subprocess.run(command, check=True, capture_output=True)


@contextlib.contextmanager
def slow_port(plane: KernelDataPlane) -> Iterator[str]:
    """The name of a port of the data plane, of 1 Mbit/s. It sends a frame of 1014 bytes every 8.1 ms."""
    name = f"wa{os.getpid() % 100000}"
    run("ip", "link", "add", name, "type", "veth", "peer", "name", name + "p")
    try:
        for end in (name, name + "p"):  # no router solicitation may join the frames in the queue
            run("sysctl", "-q", "-w", f"net.ipv6.conf.{end}.disable_ipv6=1")
        run("ip", "link", "set", name, "up")
        run("ip", "link", "set", name + "p", "up")
        run(*f"tc qdisc add dev {name} root handle 1: htb default 1".split())
        run(*f"tc class add dev {name} parent 1: classid 1:1 htb rate 1mbit burst 1600".split())
        run(*f"tc qdisc add dev {name} parent 1:1 pfifo limit 40".split())
        plane.attach(socket.if_nametoindex(name), name, SLOW_BRIDGE, ofport=1)
        yield name
    finally:
        run("ip", "link", "del", name)


def events_until_normal(plane: KernelDataPlane, timeout_s: float = 5) -> list[QueueEvent]:
    """The events of the queue until the alarm ends, or until the timeout."""
    events: list[QueueEvent] = []
    end = time.monotonic() + timeout_s
    poll = select.poll()
    poll.register(plane.events_fd(), select.POLLIN)
    while (left_s := end - time.monotonic()) > 0 and not any(e.normal for e in events):
        poll.poll(1000 * left_s)
        events += plane.events()
    return events


def send_frames(name: str, frames: int, frame: bytes = FRAME) -> None:
    """Put frames into the queue of the port."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as out:
        out.bind((name, 0))
        for _ in range(frames):
            with contextlib.suppress(OSError):  # ENOBUFS: the queue is full
                out.send(frame)


def await_empty_queue(name: str, plane: KernelDataPlane) -> None:
    """Wait until the port's queue is empty."""
    ifindex = socket.if_nametoindex(name)
    wait_until(lambda: not plane.counters(ifindex).queue_pkts, "the queue is empty")


def await_queue_seen_empty(name: str, plane: KernelDataPlane) -> None:
    """Wait until the programs have seen the queue empty. Another frame makes up for a call that was skipped.

    See docs/decisions/0030-missed-program-calls.md.
    """
    states, (key, _) = plane.pinned.maps["port_states"], plane.pinned.find_port(socket.if_nametoindex(name))

    def seen_empty() -> bool:
        await_empty_queue(name, plane)
        if not states.get(key).queue_pkts:
            return True
        send_frames(name, 1)
        return False

    wait_until(seen_empty, "the programs have seen the queue empty")
