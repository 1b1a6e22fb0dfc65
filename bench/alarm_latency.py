"""Measure how long an alarm takes from the crossing of K to the agent, to the wire, and to a controller.

    python -m bench.alarm_latency [--alarms N] [--busy] [--json]

The clock starts at the crossing: the kernel's time, in the event, of the packet that took the queue past
K. "read": a process that waits for events as the agent does has the event. "left": the BUF_ALARM of a
real agent, before a real Open vSwitch, is in the kernel's network stack, which stamps it. "received": a
controller on this machine has read the message. --busy keeps one core busy during the measurement.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import click

from bench import sandbox
from bench.figures import present
from bench.frames import ACK, Sender, frames
from bench.oncall import OnCall
from mininet_topos.results.summary import percentile
from openflow_ext import wire
from openflow_ext.switch.dataplane.interface import PortSettings, QueueEvent, QueueEventKind
from openflow_ext.switch.dataplane.kernel import KernelDataPlane
from tests.support.agent.switch_bench import Bench, Controller, open_vswitch

SO_TIMESTAMPNS = 35
K_PKTS, BURST, RTT_US = 10, 30, 1000
RATE = "100mbit"
PAYLOAD = 950
PATIENCE_S = 1.0
ECHO_REQUEST = 2

Latencies = dict[str, list[float]]


def shape(port: str) -> None:
    """Give a port a queue of 100 packets and the rate RATE."""
    sandbox.run(*f"tc qdisc add dev {port} root handle 1: htb default 1".split())
    sandbox.run(*f"tc class add dev {port} parent 1: classid 1:1 htb rate {RATE} burst 1600".split())
    sandbox.run(*f"tc qdisc add dev {port} parent 1:1 pfifo limit 100".split())


def burst(port: str) -> Callable[[], None]:
    """Sends bursts that fill a port's queue past K."""
    return Sender(port, frames(BURST, from_host=False, flags=ACK, payload=PAYLOAD)).send_all


def read_by_the_agent(alarms: int) -> Latencies:
    """The time from each crossing to a reader of events, in us."""
    sandbox.run("ip", "link", "add", "q", "type", "veth", "peer", "name", "qp")
    for name in ("q", "qp"):
        sandbox.run("ip", "link", "set", name, "up")
    shape("q")
    fill = OnCall(lambda: burst("q"))
    plane = KernelDataPlane("weir-bench", max_flows=1000)
    try:
        ifindex = socket.if_nametoindex("q")
        plane.attach(ifindex, "q", 1, 1)
        plane.configure(ifindex, PortSettings(alarm=True, k_pkts=K_PKTS, rtt_us=RTT_US), 10**8)
        return {"read": asyncio.run(_read(plane, fill, alarms))}
    finally:
        fill.close()
        plane.destroy()
        sandbox.run("ip", "link", "del", "q")


async def _read(plane: KernelDataPlane, fill: OnCall, alarms: int) -> list[float]:
    """The crossings, without the alarms that repeat until the queue is empty again."""
    took: list[float] = []
    quiet = asyncio.Event()
    first = True

    def on_events() -> None:
        nonlocal first
        events: list[QueueEvent] = plane.events()
        now = time.time_ns()
        for event in events:
            if event.kind is QueueEventKind.BUF_ALARM and first:
                took.append((now - event.crossing_ns) / 1e3)
                first = False
            elif event.normal:
                first = True
                quiet.set()

    loop = asyncio.get_running_loop()
    loop.add_reader(plane.events_fd(), on_events)
    while len(took) < alarms:
        quiet.clear()
        fill()
        with contextlib.suppress(TimeoutError):  # the burst was delayed, so it did not fill the queue
            await asyncio.wait_for(quiet.wait(), PATIENCE_S)
    loop.remove_reader(plane.events_fd())
    return took


def stamped(controller: Controller) -> Iterator[tuple[bytes, int, int] | None]:
    """A controller's messages, each with the Unix times, in ns, at which the kernel got it and it was read.

    None where nothing comes for long.
    """
    sock = controller.sock
    assert sock is not None  # noqa: S101 - accept() was called
    sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    sock.settimeout(PATIENCE_S)
    waiting = b""
    while True:
        try:
            data, control, _, _ = sock.recvmsg(65536, 64)
        except TimeoutError:
            yield None
            continue
        read_ns = time.time_ns()
        if not data:
            raise click.ClickException("the agent ended the session")
        seconds, ns = struct.unpack("qq", control[0][2][:16])
        waiting += data
        while len(waiting) >= 8 and len(waiting) >= (size := int.from_bytes(waiting[2:4], "big")):
            message, waiting = waiting[:size], waiting[size:]
            if message[1] == ECHO_REQUEST:
                controller.send(message[:1] + b"\x03" + message[2:])
            yield message, seconds * 10**9 + ns, read_ns


def through_the_agent(alarms: int) -> Latencies:
    """The times from the crossing to the message in the network stack and at the controller, in us."""
    took: Latencies = {"left": [], "received": []}
    with open_vswitch() as ovs, contextlib.ExitStack() as stack:
        bench = Bench(ovs)
        stack.callback(bench.tear_down)
        bench.build()
        controller = Controller()
        stack.callback(controller.close)
        bench.ready_agent(controller)
        controller.accept()
        shape(bench.port(2))
        fill = OnCall(lambda: burst(bench.port(2)))
        stack.callback(fill.close)
        config = wire.PortConfig(2, wire.PortConfigFlags.ALARM, k_pkts=K_PKTS, rtt_us=RTT_US)
        controller.ask(wire.encode_message(config, xid=5))
        controller.barrier()
        messages = stamped(controller)
        while len(took["left"]) < alarms:
            fill()
            _follow(messages, took)
    return took


def _follow(messages: Iterator[tuple[bytes, int, int] | None], took: Latencies) -> None:
    """Read the alarm of the crossing, then all messages until the queue is empty."""
    first = True
    for stamped_message in messages:
        if stamped_message is None:  # the burst was delayed, so it did not fill the queue
            return
        data, left_ns, received_ns = stamped_message
        message = wire.decode_message(data) if wire.is_extension_message(data) else None
        if isinstance(message, wire.BufNormal):
            return
        if isinstance(message, wire.BufAlarm) and first:
            took["left"].append((left_ns - message.crossing_ns) / 1e3)
            took["received"].append((received_ns - message.crossing_ns) / 1e3)
            first = False


@contextlib.contextmanager
def one_core_busy(busy: bool) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if busy else None
    try:
        yield
    finally:
        if process is not None:
            process.kill()
            process.wait()


def rows_of(took: Latencies) -> list[dict[str, Any]]:
    return [
        {"crossing to": what, "alarms": len(values)}
        | {f"{name} us": round(percentile(values, part)) for name, part in (("p50", 50), ("p99", 99))}
        | {"max us": round(max(values))}
        for what, values in took.items()
    ]


@click.command(help=__doc__)
@click.option("--alarms", default=1000, show_default=True)
@click.option("--busy", is_flag=True, help="Keep one core busy during the measurement.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def main(alarms: int, busy: bool, as_json: bool) -> None:
    sandbox.enter()
    os.environ.pop("OVS_RUNDIR", None)
    with one_core_busy(busy):
        took = read_by_the_agent(alarms) | through_the_agent(alarms)
    columns = ("crossing to", "alarms", "p50 us", "p99 us", "max us")
    present("Alarm latency" + (", one core busy" if busy else ""), columns, rows_of(took), as_json)


if __name__ == "__main__":
    main()
