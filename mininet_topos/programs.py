"""A scheme's programs, started as a user would: ryu-manager with the scheme's apps, and the agent."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mininet_topos.baselines import ECN_ALWAYS, ECN_IF_ASKED, Transport, provide
from mininet_topos.errors import LabError
from mininet_topos.net import Network
from mininet_topos.node import LabHost, run
from mininet_topos.process import Program, command
from mininet_topos.schemes import Scheme, Settings, to_toml
from mininet_topos.signals import undisturbed
from mininet_topos.traffic import WORKER_PORT, Traffic

LOOPBACK = "127.0.0.1"
READY_S = 30.0
TCP_LISTEN = "0A"


@dataclass(frozen=True, slots=True)
class Running:
    """A scheme at work on a network. ``dataplane``: the agent's name for it, "" without an agent.

    ``transports``: those that hosts take in turn; ``places``: which of them is a host's own.
    """

    scheme: Scheme
    programs: tuple[Program, ...]
    dataplane: str
    transports: tuple[Transport, ...]
    places: Mapping[str, int]

    def cc_of(self, host: LabHost) -> str:
        """The congestion control of a host's sockets."""
        return self.transports[self.places[host.name]].congestion_control

    @property
    def pids(self) -> dict[str, int]:
        """The scheme's processes by their names: controller, and agent where there is one."""
        return {program.name: program.pid for program in self.programs}

    def check(self) -> None:
        """Raises ProgramFailed where a program has ended."""
        for program in self.programs:
            program.check()

    def ports(self) -> list[dict]:
        """The extended switch's port counters; none without an agent."""
        if not self.dataplane:
            return []
        return json.loads(run(command("weir"), "ports", "--name", self.dataplane, "--json"))["ports"]


def free_port() -> int:
    """A TCP port of the loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return probe.getsockname()[1]


def is_listening(port: int) -> bool:
    """Whether somebody listens on a port of this namespace (looked up, not connected to)."""
    wanted = f":{port:04X}"
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if words[1].endswith(wanted) and words[3] == TCP_LISTEN:
            return True
    return False


def require_free(port: int | None) -> None:
    """Raises LabError where somebody listens on a port that was asked for."""
    if port is not None and is_listening(port):
        raise LabError(f"port {port} is in use: choose another with --controller-port, or leave it out")


@contextmanager
def running(
    scheme: Scheme, net: Network, folder: Path, port: int | None = None, congestion_control: str = "reno"
) -> Iterator[Running]:
    """A scheme's programs for as long as the context lasts, ready and connected to every switch.

    `folder` gets their configuration, logs and database. `port`: where the controller listens; none: a
    free one. `congestion_control`: the hosts', where the scheme names none. Raises ProgramFailed, LabError.
    """
    require_free(port)
    transports = provide(scheme.transports or (congestion_control,), net.state)
    places = deal(net, transports)
    port = port or free_port()
    folder.mkdir(parents=True)
    config = folder / "weir.toml"
    database: Settings = {"flowdb": {"url": f"sqlite:///{(folder / 'flowdb.sqlite').resolve()}"}}
    config.write_text(to_toml(database | scheme.settings))
    env = {"WEIR_CONFIG": str(config.resolve())}
    programs: list[Program] = []
    try:
        _start_controller(scheme, net, folder, port, env, programs)
        if scheme.extended:
            _start_agent(net, folder, port, env, programs)
        else:
            for switch in net.switches:
                switch.control(f"tcp:{LOOPBACK}:{port}")
        programs[0].wait_ready(lambda: all_controlled(net), "a switch is not connected to it", READY_S)
        dataplane = net.state.dataplane if scheme.extended else ""
        now = Running(scheme, tuple(programs), dataplane, transports, places)
        check_reachability(net, folder)
        now.check()
        yield now
    finally:
        with undisturbed():
            for program in reversed(programs):
                program.stop()
            for switch in net.switches:
                switch.release()


def all_controlled(net: Network) -> bool:
    """Whether every switch is connected to its controller."""
    return all(switch.controlled() for switch in net.switches)


def deal(net: Network, transports: Sequence[Transport]) -> dict[str, int]:
    """Give the hosts the transports in turn, workers and senders each from the first; returns whose is which.

    Hosts that receive from all of them take part in ECN where they are asked, or ask where all do.
    """
    places = {host.name: 0 for host in net.hosts}
    for group in (net.workers, net.senders):
        places |= {host.name: number % len(transports) for number, host in enumerate(group)}
    dealt = {host.name for host in (*net.workers, *net.senders)}
    everybody = ECN_ALWAYS if all(one.tcp_ecn == ECN_ALWAYS for one in transports) else ECN_IF_ASKED
    for host in net.hosts:
        own = transports[places[host.name]].tcp_ecn if host.name in dealt else everybody
        host.cmd(f"sysctl -q -w net.ipv4.tcp_ecn={own}")
    return places


def _start_controller(
    scheme: Scheme, net: Network, folder: Path, port: int, env: dict[str, str], programs: list[Program]
) -> None:
    argv = (
        *(command("ryu-manager"), "--ofp-listen-host", LOOPBACK, "--ofp-tcp-listen-port", str(port)),
        *scheme.apps,
    )
    controller = Program("controller", argv, folder / "controller.log", net.state, env)
    programs.append(controller)
    controller.wait_ready(lambda: is_listening(port), f"nobody listens on port {port}", READY_S)


def _start_agent(net: Network, folder: Path, port: int, env: dict[str, str], programs: list[Program]) -> None:
    bridges = [word for switch in net.switches for word in ("--bridge", switch.name)]
    argv = (
        *(command("weir"), "switch", *bridges, "--name", net.state.dataplane),
        *("--controller", f"tcp:{LOOPBACK}:{port}", "--json"),
    )
    agent = Program("agent", argv, folder / "agent.log", net.state, env)
    programs.append(agent)
    agent.wait_ready(lambda: '"event": "ready"' in agent.output(), "it did not say ready", READY_S)


def check_reachability(net: Network, folder: Path) -> None:
    """Have the root open a TCP connection to every host, so that all are known before anything counts.

    Then one host of each other switch does the same. Raises ProgramFailed naming the host that cannot be
    reached.
    """
    askers = {net.layout.switch_of(host.name): host for host in (*reversed(net.hosts), net.root)}
    traffic = Traffic(folder / "reachability.jsonl", net.state)
    try:
        for host in net.hosts:
            traffic.start(host, "worker", port=WORKER_PORT)
        traffic.await_event("listening", len(net.hosts), READY_S)
        for done, asker in enumerate(sorted(askers.values(), key=lambda host: host is not net.root), 1):
            addresses = " ".join(f"{host.name}={host.IP()}" for host in net.hosts if host is not asker)
            options = ("--size", "1", "--queries", "1", "--gap-ms", "0", "--workers", addresses)
            traffic.start(asker, "root", *options, port=WORKER_PORT)
            traffic.await_event("done", done, READY_S)
            traffic.await_event("closed", done * (len(net.hosts) - 1), READY_S)
    finally:
        traffic.stop()
