"""Several Open vSwitch bridges in Mininet, one agent for all of them, and a fabric controller."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mininet.net import Mininet
from mininet.node import Host
from mininet.topo import Topo

from mininet_topos.machine.commands import vsctl
from mininet_topos.network.nodes import LabSwitch
from mininet_topos.network.ovs_buffers import ensure_send_buffer
from mininet_topos.network.shaping import OFFLOADS_OFF
from mininet_topos.running.scheme_programs import free_port, is_listening
from tests.support.agent.switch_bench import Agent, run
from tests.support.database.rows import Row, rows
from tests.support.waiting import DEADLINE_S, wait_until
from weir_base.paths import PROJECT

ECHO = str(Path(__file__).with_name("echo.py"))
PREFIX = f"f{os.getpid() % 10_000}x"
"""The names contain the process id, so that two runs do not collide."""


class Diamond(Topo):
    """Hosts 1 and 2 at switch 1, 3 and 4 at switch 4, and between them switches 2 and 3: a loop."""

    def build(self) -> None:
        for number in (1, 2, 3, 4):
            self.addSwitch(switch(number), dpid=f"{number:016x}")
        for number, at in ((1, 1), (2, 1), (3, 4), (4, 4)):
            self.addHost(f"h{number}", ip=f"10.0.0.{number}/24", mac=f"00:00:00:00:00:{number:02x}")
            self.addLink(f"h{number}", switch(at), port2=number)
        for middle in (2, 3):
            self.addLink(switch(1), switch(middle), port1=10 + middle, port2=1)
            self.addLink(switch(middle), switch(4), port1=2, port2=10 + middle)


def switch(number: int) -> str:
    return f"{PREFIX}{number}"


class Snooped:
    """The messages between a switch and its controller, in a file."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def count(self, kind: str) -> int:
        """The number of messages OFPT_``kind`` so far."""
        return self._file.read_text(errors="replace").count(f"OFPT_{kind} ")


class Bench:
    """A running diamond with a controller and, if ``extended``, an agent."""

    def __init__(self, folder: Path, engine: str, version: str, settings: str) -> None:
        self.folder, self.port = folder, free_port()
        config = folder / "weir.toml"
        config.write_text(f"[fabric]\n{settings}\n[flowdb]\nurl = 'sqlite:///{folder}/weir.db'\n")
        self.env = {**os.environ, "PYTHONPATH": str(PROJECT), "WEIR_CONFIG": str(config)}
        self._engine, self._version = engine, version
        self._processes: list[subprocess.Popen[Any]] = []
        self._agents: list[Agent] = []
        self.net = Mininet(Diamond(), switch=LabSwitch, host=Host, controller=None, build=False)

    @property
    def extended(self) -> bool:
        """Whether the switches have an agent."""
        return bool(self._agents)

    def start(self, extended: bool) -> None:
        ensure_send_buffer()
        self.net.build()
        for host in self.net.hosts:
            off = host.cmd(f"ethtool -K {host.defaultIntf()} {OFFLOADS_OFF} && echo done")
            assert "done" in off, off
            host.cmd(f"ip addr add fd00::{host.name[1:]}/64 dev {host.defaultIntf()} nodad")
        self.net.start()
        for one in self.net.switches:
            vsctl("set", "bridge", one.name, f"protocols=OpenFlow{self._version}")
            for name in one.intfNames():
                if name != "lo":
                    run("ethtool", "-K", name, *OFFLOADS_OFF.split())
        self.start_controller()
        target = f"tcp:127.0.0.1:{self.port}"
        if not extended:
            for one in self.net.switches:
                one.control(target)
            return
        bridges = [word for one in self.net.switches for word in ("--bridge", one.name)]
        agent = Agent("--name", PREFIX, *bridges, "--controller", target, env=self.env)
        self._agents.append(agent)
        agent.await_event("ready")

    def start_controller(self) -> subprocess.Popen[Any]:
        argv = ["-m", "weir", "controller", "--engine", self._engine, "--apps", "fabric_app.app"]
        argv += ["--listen", f"127.0.0.1:{self.port}"]
        self.controller = self._spawn([sys.executable, "-W", "ignore", *argv], "controller.log")
        wait_until(lambda: is_listening(self.port), "the controller listens")
        return self.controller

    def _spawn(self, argv: list[str], log: str) -> subprocess.Popen[Any]:
        with (self.folder / log).open("ab") as file:
            process = subprocess.Popen(argv, env=self.env, stdout=file, stderr=file)
        self._processes.append(process)
        return process

    def stop(self) -> None:
        for agent in self._agents:
            agent.end(signal.SIGTERM)
        if self._agents:
            Agent("--name", PREFIX, "--detach", env=self.env).end(None)
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait(DEADLINE_S)
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
        self.net.stop()

    def log(self) -> str:
        return (self.folder / "controller.log").read_text()

    def links_found_since(self, position: int) -> int:
        """How many different links the log reports as found from a position on."""
        return len(set(re.findall(r"link (\S+ - \S+) found", self.log()[position:])))

    def rows(self, model: type[Row]) -> list[Row]:
        return rows(self.folder / "weir.db", model)

    def popen(self, host: str, *argv: str, **options: Any) -> subprocess.Popen[str]:
        process = subprocess.Popen([*self._inside(host), *argv], stdout=subprocess.PIPE, text=True, **options)
        self._processes.append(process)
        return process

    def ping(self, src: str, address: str, count: int = 1) -> bool:
        options = ("-c", str(count), "-i", "0.05", "-W", "1")
        return self.popen(src, "ping", *options, address).wait(DEADLINE_S) == 0

    def serve(self, host: str, port: int) -> None:
        server = self.popen(host, sys.executable, "-I", ECHO, "serve", str(port))
        assert server.stdout is not None
        assert server.stdout.readline() == "listening\n"

    def call(self, host: str, address: str, port: int, count: int) -> tuple[subprocess.Popen[str], list[int]]:
        """Start connections that send all the time; return the process and their local ports."""
        argv = (sys.executable, "-I", ECHO, "call", address, str(port), str(count))
        caller = self.popen(host, *argv, stdin=subprocess.PIPE)
        assert caller.stdout is not None
        return caller, json.loads(caller.stdout.readline())

    def frames_in(self, number: int) -> int:
        """The number of frames that a switch has received."""
        return sum(int(count) for count in re.findall(r"rx pkts=(\d+)", self._ofctl(number, "dump-ports")))

    def frames_out(self, number: int, port_no: int) -> int:
        """The number of frames that a switch has sent by a port."""
        (count,) = re.findall(r"tx pkts=(\d+)", self._ofctl(number, "dump-ports", str(port_no)))
        return int(count)

    def forget_all(self) -> None:
        """Restart the controller without its database, delete all entries, and fill neighbour tables."""
        for host in self.net.hosts:
            for other in self.net.hosts:
                at = ("dev", str(host.defaultIntf()), "nud", "permanent")
                run(
                    *self._inside(host.name), "ip", "neigh", "replace", other.IP(), "lladdr", other.MAC(), *at
                )
        self.controller.kill()
        self.controller.wait()
        for file in self.folder.glob("weir.db*"):
            file.unlink()
        for number in (1, 2, 3, 4):
            self._ofctl(number, "del-flows")
        self.start_controller()

    def dump_flows(self, number: int) -> str:
        """The flow entries of a switch, one a line."""
        return self._ofctl(number, "dump-flows")

    def meter_stats(self, number: int) -> str:
        """The counters of a switch's meters, as ovs-ofctl prints them."""
        return self._ofctl(number, "meter-stats")

    @contextlib.contextmanager
    def snooping(self, number: int) -> Iterator[Snooped]:
        """Note what a switch and its controller say to each other."""
        argv = ["ovs-ofctl", "-O", f"OpenFlow{self._version}", "snoop", switch(number)]
        file = self.folder / "snooped"
        with file.open("wb") as out:
            process = subprocess.Popen(argv, stdout=out, stderr=out)
        self._processes.append(process)
        try:
            wait_until(lambda: file.stat().st_size, "the snooper hears something")
            yield Snooped(file)
        finally:
            process.terminate()
            process.wait(DEADLINE_S)

    def _ofctl(self, number: int, command: str, *argv: str) -> str:
        return run("ovs-ofctl", "-O", f"OpenFlow{self._version}", command, switch(number), *argv)

    def _inside(self, host: str) -> list[str]:
        return ["mnexec", "-a", str(self.net[host].pid)]

    def watching(self, number: int) -> contextlib.AbstractContextManager[dict[int, set[str]]]:
        """Capture at a middle switch: the client ports of TCP connections, with the directions seen."""
        return watching(f"{switch(number)}-eth1")


@contextlib.contextmanager
def watching(ifname: str, only: str = "tcp") -> Iterator[dict[int, set[str]]]:
    """Gives a dict that is filled at the end: client ports of TCP connections, with the directions seen."""
    argv = ["tcpdump", "-nn", "-U", "-l", "-i", ifname, only]
    found: dict[int, set[str]] = {}
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    for line in process.stderr:
        if "listening on" in line:
            break
    try:
        yield found
    finally:
        time.sleep(0.2)
        process.terminate()
        for src, dst in re.findall(r"IP6? \S+\.(\d+) > \S+\.(\d+):", process.communicate()[0]):
            way = "out" if int(src) > int(dst) else "back"
            found.setdefault(max(int(src), int(dst)), set()).add(way)


@contextlib.contextmanager
def diamond(
    folder: Path, engine: str, version: str, settings: str = "", extended: bool = True
) -> Iterator[Bench]:
    bench = Bench(folder, engine, version, settings)
    try:
        bench.start(extended)
        yield bench
    finally:
        bench.stop()


def ended(caller: subprocess.Popen[str]) -> list[float]:
    """The longest wait of each connection of a caller, in seconds."""
    out, _ = caller.communicate(timeout=DEADLINE_S)
    waits: list[float] = json.loads(out)
    return waits
