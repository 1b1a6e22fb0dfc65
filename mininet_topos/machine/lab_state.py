"""The record of what a lab has created, in a file, so that it can be removed even after `kill -9`.

Each lab owns `/run/weir/labN.json` and holds a lock on it for its lifetime. An unlocked file
belongs to a lab that ended without removing its network. `weir lab clean` removes what such a file lists.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from mininet_topos.errors import LabError
from mininet_topos.machine.proc_stat import started_ticks

STATE_DIR = Path("/run/weir")
MOST_LABS = 64
KILL_AFTER_S = 5.0
Created = dict[str, Any]
"""The content of a state file."""


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
    """Return the folder in which an agent pins its data plane."""
    return Path("/sys/fs/bpf", dataplane)


@dataclass
class LabState:
    """The number of a lab, and what it has created. A change is on disk before the lab relies on it."""

    number: int
    path: Path
    _file: IO[str]
    processes: dict[int, int] = field(default_factory=dict)
    interfaces: list[str] = field(default_factory=list)
    bridges: list[str] = field(default_factory=list)
    bound: tuple[int, int, list[int]] | None = None
    transports: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    sysctls: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def prefix(self) -> str:
        """The prefix of the bridges' names, unique among this machine's labs."""
        return f"s{self.number}"

    @property
    def dataplane(self) -> str:
        """The name of the agent's data plane."""
        return f"lab{self.number}"

    @classmethod
    def claim(cls) -> LabState:
        """Take the lowest number that no running lab has and whose bridge and data plane do not exist.

        What a killed lab of that number has left is removed first. Raises LabError if every number is taken.
        """
        STATE_DIR.mkdir(mode=0o755, parents=True, exist_ok=True)
        for number in range(1, MOST_LABS + 1):
            path = STATE_DIR / f"lab{number}.json"
            file = _lock(path)
            if file is None:
                continue
            _remove(_read(file), path)
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
        json.dump(self._created(), self._file)
        self._file.flush()

    def _created(self) -> Created:
        return {
            "bridges": self.bridges,
            "dataplane": self.dataplane,
            "processes": self.processes,
            "interfaces": self.interfaces,
            "bound": self.bound,
            "transports": self.transports,
            "folders": self.folders,
            "sysctls": self.sysctls,
        }

    def note_network(self, bridges: Iterable[str], interfaces: Iterable[str]) -> None:
        """Note bridges and interfaces before they are created. Raises LabError if one exists already."""
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
        """Note a process before it is bound to a CPU, and the CPUs on which it was allowed to run."""
        self.bound = (pid, started_ticks(pid) or 0, sorted(cpus))
        self.save()

    def bound_by_others(self, pid: int) -> list[int]:
        """Return the CPUs of a process before another running lab bound it; [] if none did."""
        return _bound_by_others(pid, self.path)

    def note_transport(self, name: str) -> None:
        """Note a congestion control that the lab has loaded."""
        self.transports.append(name)
        self.save()

    def note_folder(self, path: str) -> None:
        """Note a temporary folder that the lab has made."""
        self.folders.append(path)
        self.save()

    def note_sysctl(self, path: Path, before: int, after: int) -> None:
        """Note a system setting before the lab changes it for a while."""
        self.sysctls[str(path)] = (before, after)
        self.save()

    def drop_sysctl(self, path: Path) -> None:
        """Note that a system setting has its earlier value again."""
        self.sysctls.pop(str(path), None)
        self.save()

    def left(self) -> list[str]:
        """Return what the lab has created and what still exists."""
        names = [*filter(_bridge_exists, self.bridges), *filter(_interface_exists, self.interfaces)]
        processes = [f"process {pid}" for pid, ticks in self.processes.items() if started_ticks(pid) == ticks]
        pins = [str(_pins(self.dataplane))] if _pins(self.dataplane).exists() else []
        return [*names, *processes, *pins]

    def release(self) -> None:
        """Remove what still exists, and delete the state file."""
        _remove(self._created(), self.path)
        self.path.unlink(missing_ok=True)
        self._file.close()


def _lock(path: Path) -> IO[str] | None:
    """Open and lock a state file; None if its lab still runs, or has just removed the file."""
    file = open(path, "a+")  # noqa: SIM115 - it stays open: its lock shows that the lab runs
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
            return file
    except (BlockingIOError, FileNotFoundError):
        pass
    file.close()
    return None


def _read(file: IO[str]) -> Created:
    file.seek(0)
    try:
        created: Created = json.loads(file.read() or "{}")
    except ValueError:
        return {}
    return created


def clean() -> list[str]:
    """Remove what labs that no longer run have left. Returns a line for each thing that was removed."""
    removed = []
    for path in sorted(STATE_DIR.glob("lab*.json")):
        file = _lock(path)
        if file is not None:
            removed += _remove(_read(file), path)
            path.unlink(missing_ok=True)
            file.close()
    return removed


def _remove(created: Created, path: Path) -> list[str]:
    """Remove what the lab of a state file has created. Returns a line for each thing."""
    weir = Path(sys.executable).with_name("weir")
    removed = [*_end_processes(created), *_end_binding(created, path)]
    name = created.get("dataplane", "")
    if name and _pins(name).exists():
        subprocess.run((weir, "switch", "--name", name, "--detach"), check=False, stdout=subprocess.DEVNULL)
        removed.append(f"data plane {name}")
    for bridge in filter(_bridge_exists, created.get("bridges", [])):
        subprocess.run(("ovs-vsctl", "-t", "10", "--if-exists", "del-br", bridge), check=False)
        removed.append(f"bridge {bridge}")
    for name in filter(_interface_exists, created.get("interfaces", [])):
        subprocess.run(("ip", "link", "del", name), check=False, stderr=subprocess.DEVNULL)
        removed.append(f"interface {name}")
    for name in created.get("transports", []):
        unload = (weir, "transports", "unload", name)
        subprocess.run(unload, check=False, stdout=subprocess.DEVNULL)
        removed.append(f"congestion control {name}")
    for folder in filter(os.path.isdir, created.get("folders", [])):
        shutil.rmtree(folder, ignore_errors=True)
        removed.append(f"folder {folder}")
    for sysctl, (before, after) in created.get("sysctls", {}).items():
        if Path(sysctl).read_text().strip() == str(after):
            Path(sysctl).write_text(f"{before}\n")
            removed.append(f"value {after} of {sysctl}")
    return removed


def _end_processes(created: Created) -> list[str]:
    removed = []
    for pid, ticks in created.get("processes", {}).items():
        if ticks and started_ticks(int(pid)) == ticks:
            _end(int(pid), ticks)
            removed.append(f"process {pid}")
    return removed


def _end_binding(created: Created, path: Path) -> list[str]:
    """Let the switch run on all CPUs again, unless another running lab has bound it too."""
    if not created.get("bound"):
        return []
    pid, ticks, cpus = created["bound"]
    if started_ticks(pid) != ticks or _bound_by_others(pid, path):
        return []
    os.sched_setaffinity(pid, cpus)
    return [f"binding of process {pid} to one CPU"]


def _bound_by_others(pid: int, path: Path) -> list[int]:
    """Return the CPUs of a process before a running lab of another file bound it; [] if none did."""
    for other in sorted(set(STATE_DIR.glob("lab*.json")) - {path}):
        try:
            with open(other) as file:
                bound = _read(file).get("bound")
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # raises if the lab runs
        except BlockingIOError:
            if bound and bound[:2] == [pid, started_ticks(pid)]:
                return list(bound[2])
        except FileNotFoundError:
            continue
    return []


def _end(pid: int, ticks: int) -> None:
    os.kill(pid, signal.SIGTERM)
    until = time.monotonic() + KILL_AFTER_S
    while started_ticks(pid) == ticks and time.monotonic() < until:
        time.sleep(0.05)
    if started_ticks(pid) == ticks:
        os.kill(pid, signal.SIGKILL)
