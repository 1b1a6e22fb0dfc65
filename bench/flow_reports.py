"""Compare flow openings as FLOW_REPORTs to a Ryu app that counts them with PACKET_INs to simple_switch_13.

    python -m bench.flow_reports [--rate R] [--seconds S] [--interval-ms MS] [--json]

The agent, Open vSwitch and Ryu are real. For the reports, the SYN and SYN-ACK of every flow pass first;
the ACKs, which open the flows, then cross a port at --rate a second. For the PACKET_INs, as many SYNs of
different flows enter at the same port and rate. simple_switch_13 floods them, because it never learns
their destination. "behind" is the time from the last frame sent to the last one counted. "core" is the
part of a core that each process used while it had work.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from bench import sandbox
from bench.figures import cpu_s, present
from bench.frames import ACK, SYN, Sender, frames
from bench.tally import Reader
from openflow_ext.switch.dataplane.pinned_maps import PinnedMaps
from tests.support.agent.switch_bench import Bench, open_vswitch
from tests.support.controllers.processes import controller as ryu_process
from tests.support.controllers.processes import free_port
from tests.support.waiting import wait_until

HERE = Path(__file__).parent
PORT, HOST = "flows", "flowsh"
COLUMNS = ("as", "counted", "lost", "counted /s", "behind ms", "agent core", "Ryu core")
STEP_S = 0.01
QUIET_S = 1.0
SETUP_BATCH = 10_000
MACS = bytes.fromhex("020000000002020000000001")
"""An Ethernet header to an unknown destination."""


def send_paced(sender: Sender, total: int, rate: int) -> None:
    """Send ``total`` frames, ``rate`` a second, in steps of 10 ms."""
    start, sent = time.perf_counter(), 0
    while sent < total:
        due = min(int((time.perf_counter() - start) * rate) + int(rate * STEP_S), total)
        sender.send(due - sent)
        sent = due
        time.sleep(STEP_S)


def tracked(name: str) -> int:
    with contextlib.closing(PinnedMaps(name)) as maps:
        return sum(1 for _ in maps.flows())


def shake_hands(flows: int) -> None:
    """Send the SYN and SYN-ACK of all flows through the port."""
    for interface, from_host, flags in ((PORT, False, SYN), (HOST, True, SYN | ACK)):
        with contextlib.closing(Sender(interface, frames(flows, from_host=from_host, flags=flags))) as sender:
            for _ in range(0, flows, SETUP_BATCH):
                sender.send(min(SETUP_BATCH, flows))
                time.sleep(STEP_S)


def strangers(flows: int) -> Iterator[bytes]:
    """SYNs from a known station to one that does not exist."""
    return (MACS + frame[12:] for frame in frames(flows, from_host=True, flags=SYN))


@contextlib.contextmanager
def network(app: str) -> Iterator[tuple[Bench, int, Reader]]:
    """A bridge, the agent, and Ryu with ``app``; gives Ryu's pid and a reader of its counts."""
    port = free_port()
    with open_vswitch() as ovs, contextlib.ExitStack() as stack:
        bench = Bench(ovs)
        stack.callback(bench.tear_down)
        bench.build()
        sandbox.run("ip", "link", "add", PORT, "type", "veth", "peer", "name", HOST)
        stack.callback(sandbox.run, "ip", "link", "del", PORT)
        for name in (PORT, HOST):
            sandbox.run("ip", "link", "set", name, "up")
        ovs.vsctl("add-port", bench.bridge, PORT)
        ryu = stack.enter_context(ryu_process("ryu", HERE / app, port))
        assert ryu.stdout is not None  # noqa: S101 - a pipe was asked for
        reader = Reader(ryu.stdout)
        bench.ready_agent(f"tcp:127.0.0.1:{port}")
        wait_until(reader.begun.is_set, f"{app} counts")
        wait_until(lambda: PORT in bench.attached(), "the programs are on the port")
        yield bench, ryu.pid, reader


def measure(bench: Bench, ryu: int, reader: Reader, sender: Sender, flows: int, rate: int) -> dict[str, Any]:
    pids = {"agent": bench.agents[0].process.pid, "Ryu": ryu}
    before, start = {name: cpu_s(pid) for name, pid in pids.items()}, time.monotonic()
    send_paced(sender, flows, rate)
    sent = time.monotonic()
    reader.changed = sent
    while reader.counted + reader.lost < flows and time.monotonic() < reader.changed + QUIET_S:
        time.sleep(STEP_S)
    taken_s = reader.changed - start
    cores = {f"{name} core": f"{(cpu_s(pid) - before[name]) / taken_s:.0%}" for name, pid in pids.items()}
    return {
        "sent": flows,
        "sent /s": round(flows / (sent - start)),
        "counted": reader.counted,
        "lost": flows - reader.counted,
        "counted /s": round(reader.counted / taken_s),
        "behind ms": round((reader.changed - sent) * 1000),
        **cores,
    }


def as_reports(flows: int, rate: int, interval_ms: int) -> dict[str, Any]:
    os.environ["WEIR_BENCH_INTERVAL_MS"] = str(interval_ms)
    with network("counting_app.py") as (bench, ryu, reader):
        shake_hands(flows)
        there = wait_until(lambda: (held := tracked(bench.name)) >= flows and held, "the flows are tracked")
        if there != flows:
            raise click.ClickException(f"{there} flows are tracked instead of {flows}")
        with contextlib.closing(Sender(PORT, frames(flows, from_host=False, flags=ACK))) as sender:
            return {"as": "FLOW_REPORT"} | measure(bench, ryu, reader, sender, flows, rate)


def as_packet_ins(flows: int, rate: int) -> dict[str, Any]:
    with network("counting_switch.py") as (bench, ryu, reader):
        wait_until(lambda: bench.ovs.flows(bench.bridge), "the table-miss entry is there")
        with contextlib.closing(Sender(HOST, strangers(flows))) as sender:
            return {"as": "PACKET_IN"} | measure(bench, ryu, reader, sender, flows, rate)


@click.command(help=__doc__)
@click.option("--rate", default=50_000, show_default=True, help="Flow openings per second.")
@click.option("--seconds", default=5.0, show_default=True, help="Duration.")
@click.option(
    "--interval-ms",
    default=50,
    show_default=True,
    help="How long the agent may collect records for one report.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def main(rate: int, seconds: float, interval_ms: int, as_json: bool) -> None:
    sandbox.enter()
    os.environ.pop("OVS_RUNDIR", None)
    flows = int(rate * seconds)
    rows = [as_reports(flows, rate, interval_ms), as_packet_ins(flows, rate)]
    present(f"{flows:,} flow openings, {rate:,}/s", COLUMNS, rows, as_json)


if __name__ == "__main__":
    main()
