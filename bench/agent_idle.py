"""Measure what the agent costs on a bridge without traffic, and how long its start, its end and a port take.

    python -m bench.agent_idle [--ports N ...] [--seconds N] [--controller scripted|weir] [--apps APPS]
        [--engine ryu|os-ken] [--json]

A private Open vSwitch has one bridge with so many veth ports, each with HTB and a FIFO. "start s" is the
time from the start of the process `weir switch` until it is ready, "end s" from SIGTERM until the process
has ended. "agent" is the part of one core that the agent uses while nothing happens. "added ms" and "removed
ms": a port joins or leaves the bridge; the time from the end of ovs-vsctl, which waits for Open vSwitch,
until the programs are attached or detached. Shown are the median, the least and the greatest of --changes.

With "scripted" the controller answers echo requests only. With "weir" it is `weir controller` with default
settings, so LLDP and telemetry run. "controller" is the part of one core that all its processes use, with
the database writer.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from bench import sandbox
from bench.figures import Spread, cpu_s, present
from openflow_ext.switch.dataplane.pinned_maps import PinnedMaps
from tests.support.agent.switch_bench import Agent, Controller, OpenVSwitch, open_vswitch
from tests.support.controllers.processes import free_port
from tests.support.waiting import wait_until
from weir.controller import DEFAULT_APPS

NAME, BRIDGE = "weir-bench", "busy"
SETTLE_S = 5.0
POLL_S = 0.001
QUEUE_BYTES = 150_000
COLUMNS = ("ports", "agent", "controller", "start s", "end s", "added ms", "removed ms")


def batch(tool: str, lines: Sequence[str], folder: Path) -> None:
    """Run commands of iproute2 in one process."""
    path = folder / f"{tool}.batch"
    path.write_text("\n".join(lines) + "\n")
    sandbox.run(tool, "-batch", str(path))


def build(ovs: OpenVSwitch, names: Sequence[str]) -> None:
    """A bridge with a port for each name."""
    kind = "datapath_type=netdev"
    ovs.vsctl("add-br", BRIDGE, "--", "set", "bridge", BRIDGE, kind, "fail_mode=secure")
    make_links(names, ovs.rundir)
    ovs.vsctl(*[word for name in names for word in ("--", "add-port", BRIDGE, name)])


def make_links(names: Sequence[str], folder: Path) -> None:
    """A veth pair for each name, with a rate and a queue."""
    links = [f"link add {name} up type veth peer name {name}h" for name in names]
    batch("ip", links + [f"link set {name}h up" for name in names], folder)
    queues = [
        line.format(name)
        for name in names
        for line in (
            "qdisc add dev {} root handle 1: htb default 1",
            "class add dev {} parent 1: classid 1:1 htb rate 100mbit",
            "qdisc add dev {} parent 1:1 handle 10: bfifo limit " + str(QUEUE_BYTES),
        )
    ]
    batch("tc", queues, folder)


def tree_cpu_s(pid: int) -> float:
    """The CPU time of a process and its children, which any of its threads may have started."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    children = [int(child) for each in lists for child in each.read_text().split()]
    return cpu_s(pid) + sum(map(tree_cpu_s, children))


@contextlib.contextmanager
def scripted() -> Iterator[tuple[str, int]]:
    """A controller that answers echo requests only; its target, and 0 for its process."""
    controller = Controller()

    def serve() -> None:
        with contextlib.suppress(OSError):
            controller.accept()
            controller.sock.settimeout(None)  # type: ignore[union-attr]  # accept() was called
            while True:
                controller.receive()

    threading.Thread(target=serve, daemon=True).start()
    yield controller.target, 0
    if controller.sock is not None:
        with contextlib.suppress(OSError):
            controller.sock.shutdown(socket.SHUT_RDWR)
    controller.close()


@contextlib.contextmanager
def weir(folder: Path, options: Sequence[str]) -> Iterator[tuple[str, int]]:
    """`weir controller` with its default settings; its target and its process."""
    config = folder / "weir.toml"
    config.write_text(f"[flowdb]\nurl = 'sqlite:///{folder}/weir.db'\n")
    env = os.environ | {"WEIR_CONFIG": str(config)}
    address = f"127.0.0.1:{free_port()}"
    quiet = subprocess.DEVNULL
    argv = [sys.executable, "-W", "ignore", "-m", "weir", "controller", "--listen", address, *options]
    running = subprocess.Popen(argv, env=env, stdout=quiet, stderr=quiet)
    try:
        yield f"tcp:{address}", running.pid
    finally:
        running.terminate()
        running.wait(30)


def until_attached(maps: PinnedMaps, name: str, attached: bool, began_s: float) -> float:
    """The milliseconds since ``began_s`` until a port carries the programs, or does not."""
    ifindex = socket.if_nametoindex(name)
    deadline_s = began_s + 30
    while carries(maps, ifindex) != attached:
        if time.perf_counter() > deadline_s:
            raise click.ClickException(f"port {name}: nothing happened in 30 s")
        time.sleep(POLL_S)
    return (time.perf_counter() - began_s) * 1000


def carries(maps: PinnedMaps, ifindex: int) -> bool:
    return any(port.ifindex == ifindex for _, port in maps.slots(ifindex))


def change_ports(ovs: OpenVSwitch, changes: int) -> tuple[list[float], list[float]]:
    """The milliseconds until added and removed ports are in effect."""
    added_ms, removed_ms = [], []
    names = [f"x{number}" for number in range(changes)]
    make_links(names, ovs.rundir)
    with contextlib.closing(PinnedMaps(NAME)) as maps:
        for name in names:
            ovs.vsctl("add-port", BRIDGE, name)
            added_ms.append(until_attached(maps, name, attached=True, began_s=time.perf_counter()))
            ovs.vsctl("del-port", BRIDGE, name)
            removed_ms.append(until_attached(maps, name, attached=False, began_s=time.perf_counter()))
    return added_ms, removed_ms


def measure(
    ports: int, seconds: float, changes: int, options: Sequence[str] | None, env: dict[str, str]
) -> dict[str, Any]:
    """One run of the agent. ``options``: of `weir controller`; None: the controller is scripted."""
    with contextlib.ExitStack() as stack:
        ovs = stack.enter_context(open_vswitch())
        build(ovs, [f"p{number}" for number in range(ports)])
        chosen = scripted() if options is None else weir(ovs.rundir, options)
        target, controller = stack.enter_context(chosen)
        began_s = time.perf_counter()
        agent = Agent(
            "--name", NAME, "--bridge", BRIDGE, "--controller", target, "--quiet", env=ovs.env | env
        )
        stack.callback(agent.end, signal.SIGKILL)
        ready = agent.await_event("ready")
        start_s = time.perf_counter() - began_s
        if ready["ports"] != ports:
            raise click.ClickException(f"only {ready['ports']} of {ports} ports carry the programs")
        sessions = ("--bare", "--columns=is_connected", "list", "controller")
        wait_until(lambda: ovs.vsctl(*sessions), "a session", accept="true".__eq__)
        time.sleep(SETTLE_S)
        used = [cpu_s(agent.process.pid), tree_cpu_s(controller) if controller else 0.0]
        measured_s = time.perf_counter()
        time.sleep(seconds)
        now = [cpu_s(agent.process.pid), tree_cpu_s(controller) if controller else 0.0]
        measured_s = time.perf_counter() - measured_s
        shares = [(after - before) / measured_s for before, after in zip(used, now, strict=True)]
        added_ms, removed_ms = change_ports(ovs, changes)
        began_s = time.perf_counter()
        agent.end()
        end_s = time.perf_counter() - began_s
        names = [f"p{number}" for number in range(ports)] + [f"x{number}" for number in range(changes)]
        batch("ip", [f"link del {name}" for name in names], ovs.rundir)
    return {
        "ports": ports,
        "agent": shares[0],
        "controller": shares[1] if controller else "",
        "start s": round(start_s, 2),
        "end s": round(end_s, 2),
        "added ms": Spread.of(added_ms),
        "removed ms": Spread.of(removed_ms),
    }


@click.command(help=__doc__)
@click.option("--ports", multiple=True, type=click.IntRange(1), default=(10, 120, 500), show_default=True)
@click.option("--seconds", default=20.0, show_default=True, help="How long the CPU is measured.")
@click.option("--changes", default=10, show_default=True, help="Ports added and removed.")
@click.option("--controller", "kind", type=click.Choice(["scripted", "weir"]), default="scripted")
@click.option("--apps", default=DEFAULT_APPS, show_default=True, help="Of `weir controller`.")
@click.option("--engine", type=click.Choice(["ryu", "os-ken"]), default="ryu", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def main(
    ports: tuple[int, ...], seconds: float, changes: int, kind: str, apps: str, engine: str, as_json: bool
) -> None:
    sandbox.enter()
    os.environ.pop("OVS_RUNDIR", None)
    Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1")
    env = {"PYTHONPATH": os.getcwd()}
    options = ("--apps", apps, "--engine", engine) if kind == "weir" else None
    rows = [measure(count, seconds, changes, options, env) for count in ports]
    if not as_json:
        for row in rows:
            row["agent"] = f"{row['agent']:.2%}"
            row["controller"] = f"{row['controller']:.2%}" if row["controller"] != "" else ""
    present(f"a quiet bridge, {kind} controller", COLUMNS, rows, as_json)


if __name__ == "__main__":
    main()
