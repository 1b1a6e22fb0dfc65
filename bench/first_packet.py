"""Measure how long the first packet of a flow waits: SYN to SYN-ACK while many senders begin at once.

    python -m bench.first_packet [--senders N ...] [--case NAME ...] [--trials N] [--rounds N] [--json]

This is the PACKET_IN pressure test of the SDTCP paper (section V.C, figure 12) without its 30 ms of
transmission: up to 50 senders at one switch, their receiver at another, Open vSwitch and Ryu unmodified.
In each trial every sender opens a connection at the same moment, on ports that no switch has seen. The
senders' kernel measures the times.

"entries": no controller; entries for all hosts are installed. "agent": the same with the agent and its
programs, without a controller. "proactive", "reactive": fabric_app and sdtcp_app with the agent.
"stopped": proactive, but the controller's process is stopped during each trial, so that it uses none of
the CPUs. "simple_switch_13": Ryu's learning switch, without flow entries before each trial.

Hosts know each other's addresses. When all connections are open, every sender sends a byte at the same
moment: the "next" packet, measured to its ACK. The cases take turns for --rounds rounds. "added" is a
round's median less that of "entries". "alone" is the part of it that only the first packet has. Each
figure is the median of the rounds, with the least and the greatest. "again" counts connections whose SYN
was retransmitted; no figure includes them.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
from pyroute2 import netns

from bench import sandbox
from bench.figures import Spread, present
from mininet_topos.results.summary import percentile
from tests.support.agent.switch_bench import Agent, OpenVSwitch, open_vswitch
from tests.support.controllers.processes import free_port
from tests.support.waiting import wait_until

MOST = 50
RECEIVER, SWITCHES = MOST + 1, ("s1", "s2")
SERVICE = 80
FIRST_PORT = 10_000
PATIENCE_S, SETTLE_S = 3.0, 0.03
UNACKED_AT, RTT_AT, RETRANSMITS_AT = 24, 68, 100
"""tcpi_unacked, tcpi_rtt (us) and tcpi_total_retrans in struct tcp_info of linux/tcp.h."""
PLAIN = "entries"
UNICAST = "dl_src=00:00:00:00:00:00/01:00:00:00:00:00"
COLUMNS = ("case", "senders", "first p50 us", "first p99 us", "first added", "next added", "alone", "again")


class Trial(NamedTuple):
    """Microseconds from SYN to SYN-ACK and from the first byte to its ACK, a connection each; and how many
    connections sent their SYN again, or came to nothing.
    """

    first_us: list[int]
    next_us: list[int]
    again: int
    failed: int


def address(number: int) -> str:
    return f"10.0.0.{number}"


def mac(number: int) -> str:
    return f"02:00:00:00:00:{number:02x}"


def host(number: int) -> str:
    return f"h{number}"


def build(ovs: OpenVSwitch) -> None:
    """Two linked switches: the senders at the first, the receiver at the second."""
    for name in SWITCHES:
        ovs.vsctl("add-br", name, "--", "set", "bridge", name, "datapath_type=netdev", "fail_mode=secure")
    sandbox.run("ip", "link", "add", "s1-s2", "type", "veth", "peer", "name", "s2-s1")
    for switch, port in zip(SWITCHES, ("s1-s2", "s2-s1"), strict=True):
        sandbox.run("ip", "link", "set", port, "up")
        sandbox.run("ethtool", "-K", port, "tx", "off")
        ovs.vsctl("add-port", switch, port, "--", "set", "interface", port, "ofport_request=100")
    for number in range(1, RECEIVER + 1):
        plug(ovs, number)


def plug(ovs: OpenVSwitch, number: int) -> None:
    """A host that has its peers' addresses in its neighbour table."""
    name, port, switch = host(number), f"p{number}", SWITCHES[number == RECEIVER]
    others = range(1, RECEIVER) if number == RECEIVER else [RECEIVER]
    sandbox.run("ip", "netns", "add", name)
    sandbox.run("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
    sandbox.run("ip", "link", "set", port, "up")
    commands = [
        "link set lo up",
        f"link set eth0 address {mac(number)} up",
        f"addr add {address(number)}/24 dev eth0",
    ]
    commands += [f"neigh add {address(one)} lladdr {mac(one)} dev eth0 nud permanent" for one in others]
    for command in commands:
        sandbox.run("ip", "-n", name, *command.split())
    sandbox.run("ip", "netns", "exec", name, "ethtool", "-K", "eth0", "tx", "off")
    ovs.vsctl("add-port", switch, port, "--", "set", "interface", port, f"ofport_request={number}")


def socket_in(number: int) -> socket.socket:
    """A TCP socket of a host that serves every trial; its connections end with an RST."""
    with contextlib.ExitStack() as stack:
        here = os.open("/proc/self/ns/net", os.O_RDONLY)
        stack.callback(os.close, here)
        stack.callback(netns.setns, here)
        netns.setns(host(number))
        made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return made


class Senders:
    """The programs of all hosts, in this process."""

    def __init__(self) -> None:
        self._port = FIRST_PORT
        self._listener = socket_in(RECEIVER)
        self._listener.bind((address(RECEIVER), SERVICE))
        self._listener.listen(2 * MOST)
        self._listener.setblocking(False)

    def trial(self, senders: int) -> Trial:
        """Open connections of so many senders at once, from ports that were never used."""
        self._port += 1
        sockets = [socket_in(number) for number in range(1, senders + 1)]
        waiting = selectors.DefaultSelector()
        for number, one in enumerate(sockets, 1):
            one.setblocking(False)
            one.bind((address(number), self._port))
            waiting.register(one, selectors.EVENT_WRITE, one)
        for one in sockets:
            one.connect_ex((address(RECEIVER), SERVICE))
        deadline, open_ones = time.monotonic() + PATIENCE_S, list[socket.socket]()
        while len(open_ones) < senders and (left_s := deadline - time.monotonic()) > 0:
            for key, _ in waiting.select(left_s):
                waiting.unregister(key.fileobj)
                open_ones.append(key.data)
        opened = [_tcp_info(one) for one in open_ones]
        time.sleep(SETTLE_S)
        for one in open_ones:
            one.send(b"x")
        time.sleep(SETTLE_S)
        acked = [_tcp_info(one) for one in open_ones]
        for one in sockets:
            one.close()
        self._accept_all()
        both = [pair for pair in zip(opened, acked, strict=True) if not _u32(pair[0], RETRANSMITS_AT)]
        return Trial(
            [_u32(first, RTT_AT) for first, _ in both],
            [_second_rtt_us(first, last) for first, last in both if not _u32(last, UNACKED_AT)],
            len(opened) - len(both),
            senders - len(opened),
        )

    def _accept_all(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                self._listener.accept()[0].close()


def _tcp_info(one: socket.socket) -> bytes:
    return one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 128)


def _second_rtt_us(first: bytes, last: bytes) -> int:
    """The second RTT, computed from the smoothed RTTs after the first and after both (RFC 6298, 2.3)."""
    return 8 * _u32(last, RTT_AT) - 7 * _u32(first, RTT_AT)


def _u32(info: bytes, at: int) -> int:
    return int.from_bytes(info[at : at + 4], sys.byteorder)


Before = Callable[[], None]


@contextlib.contextmanager
def entries(ovs: OpenVSwitch) -> Iterator[Before]:
    """Switches without a controller that have an entry for each host."""
    add_entries(ovs)
    yield lambda: None


def add_entries(ovs: OpenVSwitch) -> None:
    for switch, away in zip(SWITCHES, (range(RECEIVER, RECEIVER + 1), range(1, RECEIVER)), strict=True):
        for number in range(1, RECEIVER + 1):
            out = 100 if number in away else number
            ovs.ofctl("add-flow", switch, f"dl_dst={mac(number)},actions=output:{out}")


@contextlib.contextmanager
def agent(env: dict[str, str], port: int) -> Iterator[None]:
    """The agent of both switches, whose controller listens on ``port``."""
    bridges = [word for name in SWITCHES for word in ("--bridge", name)]
    running = Agent("--name", "wfp", *bridges, "--controller", f"tcp:127.0.0.1:{port}", env=env)
    try:
        running.await_event("ready")
        yield
    finally:
        running.end()


@contextlib.contextmanager
def agent_alone(ovs: OpenVSwitch) -> Iterator[Before]:
    """The entries of the case "entries", with an agent whose controller does not exist."""
    with agent(ovs.env | {"PYTHONPATH": os.getcwd()}, free_port()):
        add_entries(ovs)
        yield lambda: None


@contextlib.contextmanager
def fabric(ovs: OpenVSwitch, mode: str, stopped: bool = False) -> Iterator[Before]:
    """fabric_app and sdtcp_app under Ryu, with the agent."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "weir.toml")
        config.write_text(f"[fabric]\nmode = '{mode}'\n[flowdb]\nurl = 'sqlite:///{folder}/weir.db'\n")
        env = ovs.env | {"PYTHONPATH": os.getcwd(), "WEIR_CONFIG": str(config)}
        port = free_port()
        weir = ("-m", "weir", "controller", "--listen", f"127.0.0.1:{port}")
        with process(*weir, env=env) as controller, agent(env, port):

            def stand_still() -> None:
                controller.send_signal(signal.SIGCONT)
                time.sleep(SETTLE_S)
                controller.send_signal(signal.SIGSTOP)

            yield stand_still if stopped else lambda: None
            controller.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def simple_switch(ovs: OpenVSwitch) -> Iterator[Before]:
    """Ryu's learning switch, which has learnt the hosts' ports and has no entries before a trial."""
    port = free_port()
    options = ("--ofp-listen-host", "127.0.0.1", "--ofp-tcp-listen-port", str(port))
    manager = "from openflow_ext.engine import ryu_manager; ryu_manager()"
    with process("-c", manager, *options, "ryu.app.simple_switch_13", env=dict(os.environ)):
        for name in SWITCHES:
            ovs.vsctl("set-controller", name, f"tcp:127.0.0.1:{port}")

        def forget() -> None:
            for name in SWITCHES:
                ovs.ofctl("del-flows", name, UNICAST)

        yield forget
        for name in SWITCHES:
            ovs.vsctl("del-controller", name)


@contextlib.contextmanager
def process(*argv: str, env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A Python process without output."""
    quiet = subprocess.DEVNULL
    running = subprocess.Popen([sys.executable, "-W", "ignore", *argv], env=env, stdout=quiet, stderr=quiet)
    try:
        yield running
    finally:
        running.terminate()
        running.wait(30)


CASES: dict[str, Callable[[OpenVSwitch], contextlib.AbstractContextManager[Before]]] = {
    "entries": entries,
    "agent": agent_alone,
    "stopped": lambda ovs: fabric(ovs, "proactive", stopped=True),
    "proactive": lambda ovs: fabric(ovs, "proactive"),
    "reactive": lambda ovs: fabric(ovs, "reactive"),
    "simple_switch_13": simple_switch,
}


Rounds = dict[tuple[str, int], list[list[Trial]]]
"""The trials of each round, by case and number of senders."""


def measure(names: Sequence[str], senders: Sequence[int], trials: int, rounds: int) -> Rounds:
    """All trials of the chosen cases."""
    found: Rounds = defaultdict(list)
    with open_vswitch() as ovs:
        build(ovs)
        hosts = Senders()
        for _ in range(rounds):
            for name in names:
                for switch in SWITCHES:
                    ovs.ofctl("del-flows", switch)
                with CASES[name](ovs) as before:
                    wait_until(lambda: len(hosts.trial(MOST).first_us) == MOST, f"{name}: all are known")
                    for count in senders:
                        found[name, count].append([])
                        for _ in range(trials // rounds):
                            before()
                            time.sleep(SETTLE_S)
                            found[name, count][-1].append(hosts.trial(count))
    return found


def rows(found: Rounds) -> Iterator[dict[str, Any]]:
    for (name, count), rounds in found.items():
        pairs = list(zip(rounds, found[PLAIN, count], strict=True))
        first = [_median_us(mine, "first_us") - _median_us(plain, "first_us") for mine, plain in pairs]
        following = [_median_us(mine, "next_us") - _median_us(plain, "next_us") for mine, plain in pairs]
        alone = [one - other for one, other in zip(first, following, strict=True)]
        trials = [trial for trials in rounds for trial in trials]
        taken_us = [one for trial in trials for one in trial.first_us]
        yield {
            "case": name,
            "senders": count,
            "connections": len(taken_us),
            "first p50 us": percentile(taken_us, 50),
            "first p99 us": percentile(taken_us, 99),
            "first added": Spread.of(first),
            "next added": Spread.of(following),
            "alone": Spread.of(alone),
            "again": sum(trial.again for trial in trials),
            "failed": sum(trial.failed for trial in trials),
        }


def _median_us(trials: list[Trial], which: str) -> float:
    times_us: list[float] = [one for trial in trials for one in getattr(trial, which)]
    return statistics.median(times_us)


@click.command(help=__doc__)
@click.option(
    "--senders", multiple=True, type=click.IntRange(1, MOST), default=(10, 20, 30, 40, 50), show_default=True
)
@click.option(
    "--case",
    "names",
    type=click.Choice(list(CASES)),
    multiple=True,
    help="A case to run besides entries; may be repeated. Default: all.",
)
@click.option(
    "--trials", default=100, show_default=True, help="Trials of each case with each number of senders."
)
@click.option(
    "--rounds", default=4, show_default=True, help="Number of rounds in which the cases take turns."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def main(senders: tuple[int, ...], names: tuple[str, ...], trials: int, rounds: int, as_json: bool) -> None:
    sandbox.enter()
    os.environ.pop("OVS_RUNDIR", None)
    chosen = [name for name in CASES if name in (PLAIN, *(names or CASES))]
    found = measure(chosen, senders, trials, rounds)
    present(f"SYN to SYN-ACK, {trials} trials", COLUMNS, list(rows(found)), as_json)


if __name__ == "__main__":
    main()
