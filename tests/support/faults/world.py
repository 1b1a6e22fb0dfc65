"""A network whose parts can fail: Open vSwitch, agent, controller with its writer, database on a small disk.

Host 1 streams to host 2 over a slow port, so that the controller has something to do all the time.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from openflow_ext.switch.dataplane.pinned_maps import PinnedMaps
from openflow_ext.switch.dataplane.rules import WindowOp
from tests.support.agent.switch_bench import Agent, Bench, built_bench, run
from tests.support.controllers.processes import free_port
from tests.support.controllers.shifted_clock import ShiftedClock
from tests.support.waiting import DEADLINE_S, wait_until
from weir_base.paths import PROJECT

STREAM = str(PROJECT / "tests/support/lab/stream.py")
FIRST_STREAM_PORT, FIRST_PORT = 5001, 20_000
STREAMS = 2
RATE_MBIT, QUEUE_PKTS = 30, 100
DISK_BYTES = 32 << 20
LOCKED_S = 10.0
APPS = {"sdtcp": "fabric_app.app,sdtcp_app.app", "sccp": "fabric_app.app,sccp_app.app"}
CONFIG = """
[sdtcp]
rtt_us = 2000
[flowdb]
url = "sqlite:///{file}"
"""


class Streams:
    """Long flows from host 1 to host 2, whose receiver checks every byte."""

    def __init__(self, bench: Bench) -> None:
        self.ports = [FIRST_STREAM_PORT + number for number in range(STREAMS)]
        self._sinks = [self._start(bench, 2, "sink", str(port)) for port in self.ports]
        for sink in self._sinks:
            assert sink.stdout is not None
            sink.stdout.readline()
        self._sources = [self._start(bench, 1, "source", "10.77.0.2", str(port)) for port in self.ports]

    def _start(self, bench: Bench, host: int, *argv: str) -> subprocess.Popen[str]:
        command = bench.inside(host, sys.executable, "-I", STREAM, *argv)
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def running(self) -> bool:
        return all(process.poll() is None for process in (*self._sources, *self._sinks))

    def finish(self) -> list[tuple[str, str]]:
        """End the streams. Returns what each source says it has sent, and its sink received."""
        told = [
            (process, process.communicate(timeout=DEADLINE_S)) for process in (*self._sources, *self._sinks)
        ]
        said = [(out or err).strip() for _, (out, err) in told]
        return list(zip(said[:STREAMS], said[STREAMS:], strict=True))

    def kill(self) -> None:
        for process in (*self._sources, *self._sinks):
            process.kill()
            process.wait()


def torn(streams: Streams) -> list[str]:
    """End streams. Returns how each of them lost bytes."""
    said = streams.finish()
    return [
        f"a source says {sent!r}, its sink {received!r}"
        for sent, received in said
        if sent != received or not sent.isdigit()
    ]


class World:
    """The running network. ``ports``: the server ports of the short connections so far.

    ``n_i``: what N_i of the slow port has to be; only SCCP counts.
    """

    def __init__(self, bench: Bench, folder: Path, engine: str, controls: str) -> None:
        self.bench, self.engine, self._apps = bench, engine, APPS[controls]
        self.n_i = STREAMS if controls == "sccp" else 0
        self.disk = folder / "disk"
        self.database = self.disk / "weir.db"
        self.controllers_clock = ShiftedClock(folder / "controllers-clock", 0)
        self.agents_clock = ShiftedClock(folder / "agents-clock", 0)
        self.ports: list[int] = []
        self.torn: list[str] = []
        self._folder, self._of_port = folder, free_port()
        self._stopping = contextlib.ExitStack()
        self._config = folder / "weir.toml"
        self._config.write_text(CONFIG.format(file=self.database))

    def start(self) -> None:
        self.bench.ovs.env["PYTHONPATH"] = f"{self.agents_clock.folder}:{PROJECT}"
        self.bench.shape_by_ovs(2, RATE_MBIT, QUEUE_PKTS)
        self.start_controller()
        self.start_agent()
        wait_until(self.bench.ping, "ping through the fabric")
        self._start_streams()

    def _start_streams(self) -> None:
        self.streams = Streams(self.bench)
        self._stopping.callback(self.streams.kill)

    def renew_streams(self) -> None:
        """End the streams and start others. The ended ones are in ``torn`` if they lost a byte."""
        self.torn += torn(self.streams)
        self._start_streams()

    def start_controller(self) -> None:
        argv = ("--engine", self.engine, "--listen", f"127.0.0.1:{self._of_port}")
        apps = ("--apps", self._apps)
        path = f"{self.controllers_clock.folder}:{PROJECT}"
        env = os.environ | {"PYTHONPATH": path, "WEIR_CONFIG": str(self._config)}
        with (self._folder / "controller.log").open("ab") as log:
            self.controller = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", "weir", "controller", *argv, *apps],
                env=env,
                stdout=log,
                stderr=log,
            )
        self._stopping.callback(self.controller.wait)
        self._stopping.callback(self.controller.kill)

    def start_agent(self) -> None:
        self.agent: Agent = self.bench.ready_agent(f"tcp:127.0.0.1:{self._of_port}")

    def end_controller(self, number: int) -> None:
        self.controller.send_signal(number)
        self.controller.wait(DEADLINE_S)

    @property
    def writer(self) -> int:
        """The process id of the controller's writer. A thread of the controller may have started it."""

        def found() -> list[str]:
            threads = Path(f"/proc/{self.controller.pid}/task").glob("*/children")
            return " ".join(file.read_text() for file in threads).split()

        return int(wait_until(found, "the controller has a writer")[0])

    @property
    def vswitchd(self) -> int:
        return int((self.bench.ovs.rundir / "ovs-vswitchd.pid").read_text())

    def memory_kb(self) -> dict[str, int]:
        """The resident memory of each part of Weir."""
        pids = {"agent": self.agent.process.pid, "controller": self.controller.pid, "writer": self.writer}
        return {name: _resident_kb(pid) for name, pid in pids.items()}

    def connect(self) -> int:
        """Host 1 opens a short connection to a new port of host 2. Returns the port."""
        port = FIRST_PORT + len(self.ports)
        self.bench.connect_once(port)
        self.ports.append(port)
        return port

    def carried_bytes(self) -> int:
        """The bytes that have left by the slow port."""
        return self.bench.sent_bytes(2)

    def ask(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """The rows that a query finds in the database."""
        uri = f"file:{self.database}?mode=ro"
        with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=LOCKED_S)) as database:
            return database.execute(query, values).fetchall()

    def tracked(self) -> int:
        """The established flows to host 2 in the data plane."""
        with contextlib.closing(PinnedMaps(self.bench.name)) as maps:
            return sum(flow.local == "10.77.0.2" and flow.state == "established" for flow in maps.flows())

    def clamping_rules(self) -> int:
        """The MOD_WINDOW entries in the data plane."""
        return sum(rule.window_op is WindowOp.MOD_WINDOW for rule in self.bench.rules())

    def log(self) -> str:
        return (self._folder / "controller.log").read_text()

    def stop(self) -> None:
        """Kill what runs on the hosts and the controllers. The agents belong to the bench."""
        self._stopping.close()


def _resident_kb(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") // 1024


@contextlib.contextmanager
def world(folder: Path, engine: str, controls: str) -> Iterator[World]:
    """A network with running streams. ``controls``: sdtcp or sccp. Everything is removed at the end."""
    disk = folder / "disk"
    disk.mkdir()
    run("mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "weir-faults", str(disk))
    try:
        with built_bench("netdev") as bench:
            made = World(bench, folder, engine, controls)
            try:
                made.start()
                yield made
            finally:
                made.stop()
    finally:
        run("umount", str(disk))
