"""Measure how many ACKs of an armed flow pass after the crossing of K, and for how long.

    python -m bench.reflex_latency [--crossings N] [--busy] [--json]

ACKs of one flow enter by a port, one every few microseconds, while a burst takes the port's queue past K.
A packet socket behind the programs sees them as Open vSwitch does, with the kernel's time of their
arrival. "late" counts the ACKs between the crossing (the kernel's time in the event) and the first
lowered one. "after crossing" is the time from the crossing to the first lowered ACK. "after first ACK" is
the time from the first ACK after the crossing to the first lowered one, and 0 if they are the same.
"""

from __future__ import annotations

import os
import select
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from bench import sandbox
from bench.alarm_latency import K_PKTS, PATIENCE_S, RTT_US, SO_TIMESTAMPNS, burst, one_core_busy, shape
from bench.data_plane import BRIDGE, OFPORT, PEER, PORT, mod_window
from bench.figures import present
from bench.frames import ACK, SYN, Sender, frames
from bench.oncall import OnCall
from mininet_topos.results.summary import percentile
from openflow_ext.switch.dataplane.interface import PortSettings, QueueEvent, QueueEventKind
from openflow_ext.switch.dataplane.kernel import KernelDataPlane

ACKS = 400
ETH_P_IP = 0x0800
WINDOW_AT = 14 + 20 + 14
BUFFER = 16 << 20
SO_RCVBUFFORCE = 33


@dataclass(frozen=True, slots=True)
class Arrival:
    """An ACK behind the programs: the Unix time of its arrival in ns, and its window field."""

    at_ns: int
    window: int


def acks_of_a_flow() -> Callable[[], None]:
    """Sends ACKS ACKs of flow 0 to the port, one by one."""
    sender = Sender(PEER, frames(1, from_host=True, flags=ACK), train=ACKS)

    def send() -> None:
        for _ in range(ACKS):
            sender.send(1)

    return send


class Tap:
    """A packet socket that receives what Open vSwitch receives from the port."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_IP))
        self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._socket.bind((PORT, ETH_P_IP))
        self._socket.setblocking(False)

    def arrivals(self) -> list[Arrival]:
        """The ACKs since the last call, oldest first."""
        found: list[Arrival] = []
        while True:
            try:
                frame, control, _, _ = self._socket.recvmsg(128, 64)
            except BlockingIOError:
                return sorted(found, key=lambda arrival: arrival.at_ns)
            seconds, ns = struct.unpack("qq", control[0][2][:16])
            (window,) = struct.unpack_from("!H", frame, WINDOW_AT)
            found.append(Arrival(seconds * 10**9 + ns, window))

    def close(self) -> None:
        self._socket.close()


def until_quiet(plane: KernelDataPlane) -> list[QueueEvent]:
    """The events up to BUF_NORMAL; none if the burst was delayed and did not fill the queue."""
    events: list[QueueEvent] = []
    while not any(event.normal for event in events):
        if not select.select([plane.events_fd()], [], [], PATIENCE_S)[0]:
            return []
        events += plane.events()
    return events


def measure(crossings: int) -> dict[str, list[float]]:
    """The figures of each crossing during the ACKs: the count of late ACKs, and times in us."""
    for interface in (PORT, PEER):
        sandbox.run("ip", "link", "set", interface, "up")
    shape(PORT)
    plane = KernelDataPlane("weir-bench", max_flows=1000)
    workers: list[OnCall] = []
    tap = Tap()
    try:
        ifindex = socket.if_nametoindex(PORT)
        plane.attach(ifindex, PORT, BRIDGE, OFPORT)
        plane.configure(ifindex, PortSettings(alarm=True, k_pkts=K_PKTS, rtt_us=RTT_US), 10**8)
        plane.arm(ifindex, BRIDGE, [mod_window(0)])
        for interface, from_host, flags in ((PEER, True, SYN), (PORT, False, SYN | ACK)):
            opening = Sender(interface, frames(1, from_host=from_host, flags=flags))
            opening.send_all()
            opening.close()
        workers += [OnCall(acks_of_a_flow), OnCall(lambda: burst(PORT))]
        return _figures(plane, tap, workers, crossings)
    finally:
        for worker in workers:
            worker.close()
        tap.close()
        plane.destroy()


def _figures(
    plane: KernelDataPlane, tap: Tap, workers: list[OnCall], crossings: int
) -> dict[str, list[float]]:
    took: dict[str, list[float]] = {"late": [], "after crossing": [], "after first ACK": []}
    tries = 0
    while len(took["late"]) < crossings:
        tries += 1
        if tries > 20 * crossings:
            raise click.ClickException("every burst crossed K while no ACKs arrived: the machine is too busy")
        tap.arrivals()
        for worker in workers:
            worker()
        crossed = [e.crossing_ns for e in until_quiet(plane) if e.kind is QueueEventKind.REFLEX_ON]
        arrivals = tap.arrivals()
        if not crossed or not arrivals or arrivals[0].at_ns > crossed[0]:
            continue
        after = [arrival for arrival in arrivals if arrival.at_ns > crossed[0]]
        lowered = [arrival for arrival in after if arrival.window < arrivals[0].window]
        if not lowered:
            continue
        took["late"].append(sum(arrival.at_ns < lowered[0].at_ns for arrival in after))
        took["after crossing"].append((lowered[0].at_ns - crossed[0]) / 1e3)
        took["after first ACK"].append((lowered[0].at_ns - after[0].at_ns) / 1e3)
    return took


def rows_of(took: dict[str, list[float]]) -> list[dict[str, Any]]:
    parts = (("p50", 50), ("p99", 99))
    return [
        {"what": f"{name}, {'ACKs' if name == 'late' else 'us'}", "crossings": len(values)}
        | {part: round(percentile(values, percent), 1) for part, percent in parts}
        | {"max": round(max(values), 1)}
        for name, values in took.items()
    ]


@click.command(help=__doc__)
@click.option("--crossings", default=1000, show_default=True)
@click.option("--busy", is_flag=True, help="Keep one core busy during the measurement.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def main(crossings: int, busy: bool, as_json: bool) -> None:
    sandbox.enter()
    sandbox.run("ip", "link", "add", PORT, "type", "veth", "peer", "name", PEER)
    os.environ.pop("OVS_RUNDIR", None)
    with one_core_busy(busy):
        rows = rows_of(measure(crossings))
    title = "ACKs after the crossing" + (", one core busy" if busy else "")
    present(title, ("what", "crossings", "p50", "p99", "max"), rows, as_json)


if __name__ == "__main__":
    main()
