"""What a lab has made, in a file, so that it can be removed even when the lab was killed.

Each lab owns `/run/weir/labN.json` and holds a lock on it while it lives. A file whose lock is free
belongs to a lab that ended without cleaning up: `weir lab clean` removes what it lists.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from mininet_topos.errors import LabError
from mininet_topos.procstat import started_ticks

STATE_DIR = Path("/run/weir")
MOST_LABS = 64
KILL_AFTER_S = 5.0


def _interface_exists(name: str) -> bool:
    return Path(f"/sys/class/net/{name}").exists()


def _bridge_exists(name: str) -> bool:
    if _interface_exists(name):
        return True
    try:
        return subprocess.run(("ovs-vsctl", "-t", "5", "br-exists", name), check=False).returncode == 0
    except FileNotFoundError:
        return False


def _pins(dataplane: str) -> Path:
    """Where an agent pins its data plane."""
    return Path("/sys/fs/bpf", dataplane)


@dataclass
class LabState:
    """One lab's number and what it has made. Every change is on disk before it is relied on."""

    number: int
    path: Path
    _file: IO[str]
    processes: dict[int, int] = field(default_factory=dict)
    interfaces: list[str] = field(default_factory=list)
    bridges: list[str] = field(default_factory=list)
    bound: tuple[int, int, list[int]] | None = None
    transports: list[str] = field(default_factory=list)

    @property
    def prefix(self) -> str:
        """What the bridges' names begin with, unique among this host's labs."""
        return f"s{self.number}"

    @property
    def dataplane(self) -> str:
        """The name of the agent's data plane."""
        return f"lab{self.number}"

    @classmethod
    def claim(cls) -> LabState:
        """Take the lowest number of which no lab lives and whose bridge and data plane are nobody's.

        What an aborted lab of that number has left is removed first.
        """
        STATE_DIR.mkdir(mode=0o755, parents=True, exist_ok=True)
        for number in range(1, MOST_LABS + 1):
            path = STATE_DIR / f"lab{number}.json"
            file = _lock(path)
            if file is None:
                continue
            _remove(_read(file))
            if _bridge_exists(f"s{number}") or _pins(f"lab{number}").exists():
                path.unlink()
                file.close()
                continue
            state = cls(number, path, file)
            state.save()
            return state
        raise LabError(
            f"bridges s1 to s{MOST_LABS}, or data planes lab1 to lab{MOST_LABS}, are all taken: remove some, "
            f"or run `weir lab clean`"
        )

    def save(self) -> None:
        """Write the state to its file."""
        self._file.seek(0)
        self._file.truncate()
        json.dump(self._made(), self._file)
        self._file.flush()

    def _made(self) -> dict:
        return {
            "bridges": self.bridges,
            "dataplane": self.dataplane,
            "processes": self.processes,
            "interfaces": self.interfaces,
            "bound": self.bound,
            "transports": self.transports,
        }

    def note_network(self, bridges: Iterable[str], interfaces: Iterable[str]) -> None:
        """Note bridges and interfaces that are about to be made. Raises LabError where one is there."""
        for name in (*bridges, *interfaces):
            if _interface_exists(name):
                raise LabError(
                    f"{name} exists, and no lab made it: remove it (ovs-vsctl del-br, ip link del)"
                )
        self.bridges, self.interfaces = list(bridges), list(interfaces)
        self.save()

    def add_process(self, pid: int) -> None:
        """Note a process that the lab has started."""
        self.processes[pid] = started_ticks(pid) or 0
        self.save()

    def drop_process(self, pid: int) -> None:
        """Note that a process has ended."""
        self.processes.pop(pid, None)
        self.save()

    def note_bound(self, pid: int, cpus: Iterable[int]) -> None:
        """Note a process that is about to be bound to a CPU, and where it might run before."""
        self.bound = (pid, started_ticks(pid) or 0, sorted(cpus))
        self.save()

    def note_transport(self, name: str) -> None:
        """Note a congestion control that has been loaded."""
        self.transports.append(name)
        self.save()

    def left(self) -> list[str]:
        """What of the lab is still there, or there again."""
        names = [*filter(_bridge_exists, self.bridges), *filter(_interface_exists, self.interfaces)]
        processes = [f"process {pid}" for pid, ticks in self.processes.items() if started_ticks(pid) == ticks]
        pins = [str(_pins(self.dataplane))] if _pins(self.dataplane).exists() else []
        return [*names, *processes, *pins]

    def release(self) -> None:
        """Remove what is still there, and forget the lab."""
        _remove(self._made())
        self.path.unlink(missing_ok=True)
        self._file.close()


def _lock(path: Path) -> IO[str] | None:
    """Open and lock a state file; None where its lab lives."""
    file = open(path, "a+")  # noqa: SIM115 - held open: its lock says that the lab lives
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


def _read(file: IO[str]) -> dict:
    file.seek(0)
    try:
        return json.loads(file.read() or "{}")
    except ValueError:
        return {}


def clean() -> list[str]:
    """Remove what labs that are no longer alive have left. Returns what was removed, a line each."""
    removed = []
    for path in sorted(STATE_DIR.glob("lab*.json")):
        file = _lock(path)
        if file is not None:
            removed += _remove(_read(file))
            path.unlink(missing_ok=True)
            file.close()
    return removed


def _remove(made: dict) -> list[str]:
    removed = []
    for pid, ticks in made.get("processes", {}).items():
        if ticks and started_ticks(int(pid)) == ticks:
            _end(int(pid), ticks)
            removed.append(f"process {pid}")
    if made.get("bound"):
        pid, ticks, cpus = made["bound"]
        if started_ticks(pid) == ticks:
            os.sched_setaffinity(pid, cpus)
            removed.append(f"binding of process {pid} to one CPU")
    name = made.get("dataplane", "")
    weir = Path(sys.executable).with_name("weir")
    if name and _pins(name).exists():
        subprocess.run((weir, "switch", "--name", name, "--detach"), check=False, stdout=subprocess.DEVNULL)
        removed.append(f"data plane {name}")
    for bridge in filter(_bridge_exists, made.get("bridges", [])):
        subprocess.run(("ovs-vsctl", "-t", "10", "--if-exists", "del-br", bridge), check=False)
        removed.append(f"bridge {bridge}")
    for name in filter(_interface_exists, made.get("interfaces", [])):
        subprocess.run(("ip", "link", "del", name), check=False, stderr=subprocess.DEVNULL)
        removed.append(f"interface {name}")
    for name in made.get("transports", []):
        unload = (weir, "transports", "unload", name)
        subprocess.run(unload, check=False, stdout=subprocess.DEVNULL)
        removed.append(f"congestion control {name}")
    return removed


def _end(pid: int, ticks: int) -> None:
    os.kill(pid, signal.SIGTERM)
    until = time.monotonic() + KILL_AFTER_S
    while started_ticks(pid) == ticks and time.monotonic() < until:
        time.sleep(0.05)
    if started_ticks(pid) == ticks:
        os.kill(pid, signal.SIGKILL)
