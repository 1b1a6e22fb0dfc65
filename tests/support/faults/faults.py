"""The faults: each is a context in which a part of Weir, or of the ground it stands on, does not work."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

from tests.support.faults.world import World

HOURS_S = 7 * 3600
BLOCK = bytes(1 << 20)

Pids = Callable[[World], int]


@contextlib.contextmanager
def paused(pid_of: Pids, world: World) -> Iterator[None]:
    """A process does nothing, and continues."""
    pid = pid_of(world)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def killed_agent(world: World) -> Iterator[None]:
    """The data plane goes on, and the next agent adopts it."""
    world.agent.end(signal.SIGKILL)
    yield
    world.start_agent()


@contextlib.contextmanager
def ended_agent(world: World) -> Iterator[None]:
    """The agent removes its data plane. The next one follows only flows that begin later."""
    world.agent.end(signal.SIGTERM)
    yield
    world.start_agent()
    world.renew_streams()


@contextlib.contextmanager
def without_controller(number: int, world: World) -> Iterator[None]:
    world.end_controller(number)
    yield
    world.start_controller()


@contextlib.contextmanager
def killed_writer(world: World) -> Iterator[None]:
    """The controller starts another writer, so nothing has to be restored."""
    os.kill(world.writer, signal.SIGKILL)
    yield


@contextlib.contextmanager
def without_vswitchd(world: World) -> Iterator[None]:
    os.kill(world.vswitchd, signal.SIGKILL)
    world.bench.ovs.stop("ovs-vswitchd")
    (world.bench.ovs.rundir / "ovs-vswitchd.pid").unlink(missing_ok=True)
    yield
    world.bench.ovs.start_vswitchd()


@contextlib.contextmanager
def without_ovsdb(world: World) -> Iterator[None]:
    world.bench.ovs.stop("ovsdb-server")
    yield
    world.bench.ovs.start_server()


@contextlib.contextmanager
def locked_database(world: World) -> Iterator[None]:
    """Another process holds the lock of the SQLite file."""
    with contextlib.closing(sqlite3.connect(world.database, timeout=60, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield
        other.execute("ROLLBACK")


@contextlib.contextmanager
def full_disk(world: World) -> Iterator[None]:
    """The file system of the database has no room."""
    filler = world.disk / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(BLOCK[: max(1, min(len(BLOCK), _room(world)))])
    try:
        yield
    finally:
        filler.unlink()


def _room(world: World) -> int:
    room = os.statvfs(world.disk)
    return room.f_bavail * room.f_frsize


@contextlib.contextmanager
def set_clocks(controller_s: int, agent_s: int, world: World) -> Iterator[None]:
    """The clocks of controller and agent jump. They stay so until another fault sets them."""
    world.controllers_clock.set(controller_s)
    world.agents_clock.set(agent_s)
    yield


@dataclass(frozen=True)
class Fault:
    """``recorded``: a connection that opens and ends during the fault has to be in the database later."""

    during: Callable[[World], AbstractContextManager[None]]
    recorded: bool


def _agent(world: World) -> int:
    return world.agent.process.pid


def _controller(world: World) -> int:
    return world.controller.pid


FAULTS = {
    "agent killed": Fault(killed_agent, recorded=False),
    "agent restarted": Fault(ended_agent, recorded=False),
    "agent paused": Fault(partial(paused, _agent), recorded=True),
    "controller killed": Fault(partial(without_controller, signal.SIGKILL), recorded=False),
    "controller restarted": Fault(partial(without_controller, signal.SIGTERM), recorded=False),
    "controller paused": Fault(partial(paused, _controller), recorded=True),
    "writer killed": Fault(killed_writer, recorded=True),
    "writer paused": Fault(partial(paused, lambda world: world.writer), recorded=True),
    "database locked": Fault(locked_database, recorded=True),
    "disk full": Fault(full_disk, recorded=True),
    "ovs-vswitchd killed": Fault(without_vswitchd, recorded=False),
    "ovs-vswitchd paused": Fault(partial(paused, lambda world: world.vswitchd), recorded=False),
    "ovsdb-server restarted": Fault(without_ovsdb, recorded=False),
    "clocks ahead and behind": Fault(partial(set_clocks, HOURS_S, -HOURS_S), recorded=True),
    "clocks behind and ahead": Fault(partial(set_clocks, -HOURS_S, HOURS_S), recorded=True),
}
"""What the project promises of each: docs/guides/controller.md, docs/security.md, "Failing safely"."""
