"""Measure what Weir's congestion controls cost: per ACK, and to list many connections.

    python -m bench.transport_cost [--runs N] [--sockets N] [--json]

In each run every control sends the same bytes over the loopback interface, in random order, in segments of
1448 bytes. "calls" is how often the control's BPF programs run at both ends per ACK, and "ns a call" how long
that takes, as the kernel measures it, with the cost of that measurement. A quick receiver takes several
segments before it acknowledges, so that both figures are needed. "CPU" is the CPU time of both ends per ACK
without that measurement, divided by that of the kernel's reno in the same run.

The last row lists so many sockets of weir_dctcp: the time of `weir transports sockets --json`, and its
greatest memory beyond that with no socket.
"""

from __future__ import annotations

import ipaddress
import os
import random
import re
import resource
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import click

from bench.figures import Spread, present
from bench.program_cost import RunTime, counted, run_time
from bench.sandbox import enter, run
from libbpf_cffi.declarations import check, lib
from transports import pacing_paths
from transports.congestion import TRANSPORTS, loaded
from transports.deadline import set_deadline
from weir_base.paths import PROJECT

KERNELS = ("reno", "cubic")
PIECE = 64 << 10
SEGMENTS_IN_AT = 140
"""tcpi_segs_in in struct tcp_info."""
AMPLE = pacing_paths.PacingPath(buffer_bytes=1 << 30, rate_bps=10**10, flows=60)
"""t is computed, and it is 0."""


def connected(control: str, undo: ExitStack, listener: socket.socket) -> tuple[socket.socket, socket.socket]:
    client = undo.enter_context(socket.socket())
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
    client.connect(listener.getsockname())
    return client, undo.enter_context(listener.accept()[0])


def listening(control: str, undo: ExitStack) -> socket.socket:
    listener = undo.enter_context(socket.socket())
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
    listener.bind(("127.0.0.1", 0))
    listener.listen(1000)
    return listener


def transfer(control: str, total_bytes: int) -> tuple[int, int]:
    """Send so many bytes. Returns the CPU time in ns and the number of ACKs."""
    with ExitStack() as undo:
        client, server = connected(control, undo, listening(control, undo))
        if control.endswith("d2tcp"):
            set_deadline(client, total_bytes, 60)
        piece = bytes(PIECE)
        start_ns = time.process_time_ns()
        for _ in range(total_bytes // PIECE):
            client.sendall(piece)
            server.recv(PIECE, socket.MSG_WAITALL)
        spent_ns = time.process_time_ns() - start_ns
        info = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        return spent_ns, struct.unpack_from("=I", info, SEGMENTS_IN_AT)[0]


def programs_of(control: str) -> list[int]:
    """The ids of a control's programs."""
    bpftool = run(str(PROJECT / "tools" / "bpftool.sh")).strip()
    dumped = run(bpftool, "-j", "struct_ops", "dump", "name", control)
    return [int(number) for number in re.findall(r"/prog_id:(\d+)", dumped)]


def run_times(programs: Iterable[int]) -> RunTime:
    total = RunTime(0, 0)
    for number in programs:
        descriptor = check(lib().bpf_prog_get_fd_by_id(number), "open a program")
        one = run_time(descriptor)
        os.close(descriptor)
        total = RunTime(total.ns + one.ns, total.count + one.count)
    return total


def program_runs(control: str, total_bytes: int) -> tuple[float, float]:
    """How often the programs of a control run per ACK, and how long a run takes in ns."""
    programs = programs_of(control)
    with counted():
        before = run_times(programs)
        _, acks = transfer(control, total_bytes)
        spent = run_times(programs) - before
        return spent.count / acks, spent.ns_each


def costs(runs: int, total_bytes: int) -> list[dict[str, object]]:
    """Every control in random order in each run; the controls are loaded."""
    names = [*KERNELS, *TRANSPORTS]
    cpu: dict[str, list[float]] = {name: [] for name in names}
    programs: dict[str, list[tuple[float, float]]] = {name: [] for name in TRANSPORTS}
    for turn in range(runs):
        spent = {}
        for name in random.Random(turn).sample(names, len(names)):  # noqa: S311 - an order, not a secret
            spent_ns, acks = transfer(name, total_bytes)
            spent[name] = spent_ns / acks
        for name in names:
            cpu[name].append(spent[name] / spent["reno"])
        for name in TRANSPORTS:
            programs[name].append(program_runs(name, total_bytes))
    return [
        {
            "control": name,
            "calls": Spread.of([calls for calls, _ in programs[name]]) if name in programs else "",
            "ns a call": Spread.of([ns for _, ns in programs[name]]) if name in programs else "",
            "CPU": Spread.of(cpu[name]),
        }
        for name in names
    ]


def listed() -> tuple[float, int]:
    """`weir transports sockets`: its time in seconds and its memory in KB."""
    command = [sys.executable, "-m", "weir", "transports", "sockets", "--json"]
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=PROJECT)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise click.ClickException("weir transports sockets failed")
    return time.monotonic() - start, usage.ru_maxrss


def listing(sockets: int) -> dict[str, object]:
    """The cost of listing so many connections, both ends of which are of this host."""
    _, empty_kb = listed()
    wanted, most = sockets + 100, resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if wanted > most:
        raise click.ClickException(f"{sockets} sockets need {wanted} descriptors: ulimit -Hn is {most}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
    with ExitStack() as undo:
        listener = listening("weir_dctcp", undo)
        for _ in range(sockets // 2):
            connected("weir_dctcp", undo, listener)
        found = [listed() for _ in range(3)]
    return {
        "control": f"{sockets} sockets",
        "seconds": Spread.of([taken for taken, _ in found]),
        "MB": Spread.of([(used_kb - empty_kb) / 1024 for _, used_kb in found]),
    }


def mount_cgroups() -> None:
    """Deadlines need cgroups, which the sandbox's own /sys hides. They go where /proc/mounts names them."""
    folder = Path("/sys/fs/cgroup")
    named = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines() if " cgroup2 " in line]
    if named and Path(named[0]) != folder:
        run("mount", "-t", "tmpfs", "tmpfs", str(folder))
        folder = Path(named[0])
        folder.mkdir(parents=True)
    run("mount", "-t", "cgroup2", "none", str(folder))


@click.command(help=__doc__)
@click.option("--runs", default=5, show_default=True, type=click.IntRange(1))
@click.option("--mbytes", default=50, show_default=True, type=click.IntRange(1), help="Sent by each control.")
@click.option("--sockets", default=10_000, show_default=True, type=click.IntRange(2))
@click.option("--json", "as_json", is_flag=True)
def main(runs: int, mbytes: int, sockets: int, as_json: bool) -> None:
    enter()
    mount_cgroups()
    run("ip", "link", "set", "lo", "mtu", "1500", "gso_max_segs", "1")
    with ExitStack() as controls:
        for name in TRANSPORTS:
            controls.enter_context(loaded(name))
        pacing_paths.set_path(ipaddress.ip_network("127.0.0.0/8"), AMPLE)
        rows = [*costs(runs, mbytes << 20), listing(sockets)]
    present("Congestion controls", ("control", "calls", "ns a call", "CPU", "seconds", "MB"), rows, as_json)


if __name__ == "__main__":
    main()
