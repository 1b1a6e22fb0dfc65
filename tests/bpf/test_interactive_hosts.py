"""The model of interactive connections (weir_ato.h) beside the kernel of a real host."""

from __future__ import annotations

import itertools
import os
import random
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from openflow_ext.switch.dataplane.kernel import KernelDataPlane
from openflow_ext.switch.dataplane.structs import constants as c
from tests.support.data_plane.bridged_hosts import Host, connection

pytestmark = pytest.mark.beside_others

SEED = 20261128
CONNECTIONS, QUERIES, FIRST_TCP_PORT = 6, 40, 5001
SEGMENT = bytes(1000)
QUERY = b"query"


@dataclass(frozen=True, slots=True)
class Seen:
    """After a query: whether its host takes the connection for interactive, and whether the model does."""

    by_host: bool
    by_model: bool


@pytest.fixture
def plane(hosts: tuple[Host, Host]) -> Iterator[KernelDataPlane]:
    """The programs on the port of the host that asks."""
    plane = KernelDataPlane(f"weir-interactive-{os.getpid()}", max_flows=1000)
    try:
        plane.attach(hosts[0].ifindex, hosts[0].port, 1, 1, kernel_datapath=True)
        yield plane
    finally:
        plane.destroy()


def is_interactive(plane: KernelDataPlane, local_port: int) -> bool:
    """What the model says of the flow to this port of the host."""
    flows = plane.pinned.maps["other_flows"]
    (found,) = [key for key in flows.keys() if socket.ntohs(key.local_port) == local_port]  # noqa: SIM118
    return bool(flows.get(found).member & c.WEIR_INTERACTIVE)


def exchange(ends: tuple[socket.socket, socket.socket], chance: random.Random) -> None:
    """An answer of a few segments after pauses, and a query after another pause."""
    there, back = ends
    for _ in range(chance.choice((1, 2, 5, 20))):
        time.sleep(chance.choice((0, 0, 0, 0.015, 0.03, 0.05)))
        back.sendall(SEGMENT)
        there.recv(len(SEGMENT), socket.MSG_WAITALL)
    time.sleep(chance.choice((0, 0.01, 0.03, 0.05, 0.07, 0.09, 0.12, 0.25)))
    there.sendall(QUERY)
    back.recv(len(QUERY), socket.MSG_WAITALL)


def test_the_model_misses_no_interactive_connection(hosts: tuple[Host, Host], plane: KernelDataPlane) -> None:
    """Linux reports it by TCP_QUICKACK. The model may take a connection for interactive a little longer."""

    def observe(number: int) -> list[Seen]:
        chance = random.Random(SEED + number)
        found = []
        with connection(*hosts, FIRST_TCP_PORT + number, socket.AF_INET6) as ends:
            there, _ = ends
            for _ in range(QUERIES):
                exchange(ends, chance)
                by_host = not there.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)
                found.append(Seen(by_host, is_interactive(plane, there.getsockname()[1])))
        return found

    with ThreadPoolExecutor(max_workers=CONNECTIONS) as threads:
        seen = list(itertools.chain.from_iterable(threads.map(observe, range(CONNECTIONS))))
    assert Seen(True, False) not in seen
    assert seen.count(Seen(True, True)) > len(seen) // 10
    assert seen.count(Seen(False, True)) < seen.count(Seen(False, False))
