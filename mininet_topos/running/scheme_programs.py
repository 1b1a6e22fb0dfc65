"""The programs of a scheme, started as by a user: ryu-manager with the scheme's apps, and the agent."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mininet_topos.errors import LabError
from mininet_topos.experiments.baselines import DCUDP_PROGRAM, ECN_ALWAYS, ECN_IF_ASKED
from mininet_topos.experiments.schemes import Scheme, Settings, to_toml
from mininet_topos.machine.commands import command, run
from mininet_topos.machine.programs import Program
from mininet_topos.machine.signals import undisturbed
from mininet_topos.network.lab_network import Network
from mininet_topos.network.nodes import LabHost
from mininet_topos.running.host_transports import HostTransport, provide
from mininet_topos.running.receivers import choosing_windows
from mininet_topos.running.traffic_programs import WORKER_PORT, Traffic

LOOPBACK = "127.0.0.1"
READY_S = 30.0
TCP_LISTEN = "0A"
"""The state of a listening socket in /proc/net/tcp."""


@dataclass(frozen=True, slots=True)
class RunningScheme:
    """A scheme whose programs run on a network.

    ``dataplane``: the name of the agent's data plane; "" without an agent.
    ``transports``: the transports of the hosts; ``dealt``: the index of each host's transport.
    ``database_url``: of the controller's flow database.
    ``key_file``: the key of DCUDP's packets; None if no transport needs one.
    """

    scheme: Scheme
    programs: tuple[Program, ...]
    dataplane: str
    transports: tuple[HostTransport, ...]
    dealt: Mapping[str, int]
    database_url: str
    key_file: Path | None = None

    def cc_of(self, host: LabHost) -> str:
        """Return the congestion control of a host's TCP sockets; empty if its transport is not TCP."""
        return self.transports[self.dealt[host.name]].congestion_control

    @property
    def pids(self) -> dict[str, int]:
        """The process ids of the controller and, if there is one, of the agent."""
        return {program.name: program.pid for program in self.programs}

    def check(self) -> None:
        """Raise ProgramFailed if a program has ended."""
        for program in self.programs:
            program.check()

    def ports(self) -> list[dict[str, Any]]:
        """Return the port counters of the extended switch; none without an agent."""
        if not self.dataplane:
            return []
        answer = json.loads(run(command("weir"), "ports", "--name", self.dataplane, "--json"))
        return list(answer["ports"])


def free_port() -> int:
    """Return a TCP port of the loopback interface that is free."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def is_listening(port: int) -> bool:
    """Whether a program in this network namespace listens on a port, from /proc, without a connection."""
    wanted = f":{port:04X}"
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if words[1].endswith(wanted) and words[3] == TCP_LISTEN:
            return True
    return False


def require_free(port: int | None) -> None:
    """Raise LabError if the port that the user chose is in use."""
    if port is not None and is_listening(port):
        raise LabError(f"port {port} is in use: choose another with --controller-port, or leave it out")


@contextmanager
def running(
    scheme: Scheme,
    net: Network,
    folder: Path,
    port: int | None = None,
    congestion_control: str = "reno",
    receivers: Sequence[str] = (),
) -> Iterator[RunningScheme]:
    """Run a scheme's programs while the context lasts. At its start they are connected to every switch.

    `folder` gets their configuration, logs and database. `port`: where the controller listens; None: a free
    port. `congestion_control`: of the hosts, if the scheme names none. `receivers`: hosts that receive beside
    the root and the sinks. Raises ProgramFailed, LabError.
    """
    require_free(port)
    transports = provide(scheme.transports or (congestion_control,), net.state)
    dealt = deal(net, transports)
    for host in net.hosts:
        host.set_route(**scheme.route)
        host.set_window(scheme.window_bytes)
    port = port or free_port()
    folder.mkdir(parents=True)
    config = folder / "weir.toml"
    url = f"sqlite:///{(folder / 'flowdb.sqlite').resolve()}"
    database: Settings = {"flowdb": {"url": url}}
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
        key_file = make_key(transports, folder)
        now = RunningScheme(scheme, tuple(programs), dataplane, transports, dealt, url, key_file)
        with choosing_windows(scheme, net, receivers):
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


def make_key(transports: Sequence[HostTransport], folder: Path) -> Path | None:
    """Make the key that DCUDP needs beyond loopback, if a transport is DCUDP. Raises LabError."""
    if all(transport.program != DCUDP_PROGRAM for transport in transports):
        return None
    path = folder / "dcudp.key"
    run(command("weir"), "dcudp", "key", str(path))
    return path


def deal(net: Network, transports: Sequence[HostTransport]) -> dict[str, int]:
    """Give the transports to the hosts in turn: to the workers, and to the senders. Returns their indices.

    The other hosts receive from all of them: they agree to ECN or, if every transport asks for it, ask too.
    """
    dealt = {host.name: 0 for host in net.hosts}
    for group in (net.workers, net.senders):
        dealt |= {host.name: number % len(transports) for number, host in enumerate(group)}
    senders = {host.name for host in (*net.workers, *net.senders)}
    receivers_ecn = ECN_ALWAYS if all(one.tcp_ecn == ECN_ALWAYS for one in transports) else ECN_IF_ASKED
    for host in net.hosts:
        host.set_ecn(transports[dealt[host.name]].tcp_ecn if host.name in senders else receivers_ecn)
    return dealt


def _start_controller(
    scheme: Scheme, net: Network, folder: Path, port: int, env: dict[str, str], programs: list[Program]
) -> None:
    argv = (
        *(command("ryu-manager"), "--ofp-listen-host", LOOPBACK, "--ofp-tcp-listen-port", str(port)),
        *scheme.apps,
    )
    controller = Program("controller", argv, folder / "controller.log", net.state, env)
    programs.append(controller)
    controller.wait_ready(lambda: is_listening(port), f"it does not listen on port {port}", READY_S)


def _start_agent(net: Network, folder: Path, port: int, env: dict[str, str], programs: list[Program]) -> None:
    bridges = [word for switch in net.switches for word in ("--bridge", switch.name)]
    argv = (
        *(command("weir"), "switch", *bridges, "--name", net.state.dataplane),
        *("--controller", f"tcp:{LOOPBACK}:{port}", "--json"),
    )
    agent = Program("agent", argv, folder / "agent.log", net.state, env)
    programs.append(agent)
    agent.wait_ready(lambda: '"event": "ready"' in agent.output(), "it did not report ready", READY_S)


def check_reachability(net: Network, folder: Path) -> None:
    """Let the root connect to every host, so that the controller knows each host before the first run.

    Then one host of each other switch does the same. Hosts are asked one after the other, each in two round
    trips. Raises ProgramFailed, which names the host that cannot be reached.
    """
    needed_s = 2 * len(net.hosts) * net.layout.impairment.round_trip_ms / 1000
    patience_s = READY_S + 2 * needed_s
    one_of_each_switch = {net.layout.switch_of(host.name): host for host in (*reversed(net.hosts), net.root)}
    askers = sorted(one_of_each_switch.values(), key=lambda host: host is not net.root)
    traffic = Traffic(folder / "reachability.jsonl", net.state)
    try:
        for host in net.hosts:
            traffic.start(host, "worker", port=WORKER_PORT)
        traffic.await_event("listening", len(net.hosts), READY_S)
        for done, asker in enumerate(askers, 1):
            addresses = " ".join(f"{host.name}={host.IP()}" for host in net.hosts if host is not asker)
            options = ("--size", "1", "--queries", "1", "--gap-ms", "0", "--workers", addresses)
            traffic.start(asker, "root", *options, port=WORKER_PORT)
            traffic.await_event("done", done, patience_s)
            traffic.await_event("closed", done * (len(net.hosts) - 1), patience_s)
    finally:
        traffic.stop()
