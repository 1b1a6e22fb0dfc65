"""Long flows of iperf3 in a network of the lab, for benches that judge unchanged programs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from mininet_topos.machine.programs import Program
from mininet_topos.network.lab_network import Network
from mininet_topos.network.nodes import LabHost, inside

FIRST_PORT = 5201
START_S, WARMUP_S = 20.0, 2.0


def listens(net: Network, port: str) -> bool:
    """Whether a program of the root listens on a TCP port."""
    return f":{port} " in str(net.root.cmd("ss -Hltn"))


@contextmanager
def servers(net: Network, folder: Path) -> Iterator[None]:
    """A server of iperf3 at the root for each sender."""
    programs = []
    try:
        for number in range(len(net.senders)):
            port = str(FIRST_PORT + number)
            argv = inside(net.root, "iperf3", "-s", "-p", port)
            programs.append(Program("iperf3", argv, folder / "iperf3.log", net.state))
        for number, program in enumerate(programs):
            program.wait_ready(partial(listens, net, str(FIRST_PORT + number)), "it does not listen", START_S)
        yield
    finally:
        for program in reversed(programs):
            program.stop()


@contextmanager
def clients(net: Network, senders: Sequence[LabHost], folder: Path) -> Iterator[list[Program]]:
    """A long flow from each of these senders of a network to the root, as the running clients."""
    programs: list[Program] = []
    try:
        for host in senders:
            port = str(FIRST_PORT + net.senders.index(host))
            argv = inside(host, "iperf3", "-c", net.root.IP(), "-p", port, "-t", "3600")
            programs.append(Program("iperf3", argv, folder / "iperf3.log", net.state))
        yield programs
    finally:
        for program in reversed(programs):
            program.stop()


@contextmanager
def long_flows(net: Network, folder: Path) -> Iterator[None]:
    """A long flow from every sender to the root. Raises ProgramFailed at the end if one has ended."""
    with servers(net, folder), clients(net, net.senders, folder) as programs:
        if programs:
            time.sleep(WARMUP_S)
        yield
        for program in programs:
            program.check()
