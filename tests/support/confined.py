"""Run a command with the rights of a systemd unit, without systemd.

    python -m tests.support.confined UNIT COMMAND...

These settings of the unit's ``[Service]`` section are applied, by the kernel's own means:
CapabilityBoundingSet, AmbientCapabilities and User (as nobody), SystemCallFilter and RestrictAddressFamilies
(seccomp), MemoryDenyWriteExecute (prctl), ProtectSystem=strict with ReadWritePaths and StateDirectory (a
mount namespace), UMask. ``CONFINED_WRITABLE`` names more writable folders, separated by colons.
"""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path

_ALLOW, _ERRNO_EPERM = 0x7FFF0000, 0x00050001
_EQUAL = 4
_PR_SET_MDWE = 65
NOBODY = 65534


class _Compare(ctypes.Structure):
    _fields_ = [("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64)]


def service(unit: Path) -> dict[str, list[str]]:
    """The values of each setting of a unit's [Service] section, in their order."""
    found: dict[str, list[str]] = {}
    section = ""
    for line in unit.read_text().splitlines():
        if line.startswith("["):
            section = line
        elif section == "[Service]" and "=" in line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


def allowed_calls(filters: list[str]) -> set[str]:
    """The system calls that SystemCallFilter allows. systemd always allows the set @default."""
    allowed = set(_members("@default"))
    for line in filters:
        calls = {call for name in line.removeprefix("~").split() for call in _members(name)}
        allowed = allowed - calls if line.startswith("~") else allowed | calls
    return allowed | set(_members("@default"))


@cache
def _members(name: str) -> frozenset[str]:
    if not name.startswith("@"):
        return frozenset([name])
    listed = subprocess.run(
        ["systemd-analyze", "syscall-filter", "--no-pager", name], capture_output=True, text=True, check=True
    )
    lines = [line.strip() for line in listed.stdout.splitlines()[1:]]
    return frozenset(call for line in lines if line and line[0] != "#" for call in _members(line))


def filter_calls(calls: set[str], families: list[str]) -> None:
    """Install the seccomp filter: other calls, and sockets of other families, fail with EPERM."""
    library = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    library.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.seccomp_init(_ERRNO_EPERM))
    for call in sorted(calls - {"socket"}):
        number = library.seccomp_syscall_resolve_name(call.encode())
        if number >= 0:
            assert library.seccomp_rule_add_array(context, _ALLOW, number, 0, None) == 0, call
    number = library.seccomp_syscall_resolve_name(b"socket")
    for family in families:
        one = _Compare(0, _EQUAL, getattr(socket, family), 0)
        assert library.seccomp_rule_add_array(context, _ALLOW, number, 1, ctypes.byref(one)) == 0, family
    assert library.seccomp_load(context) == 0


def protect_system(writable: list[str]) -> None:
    """ProtectSystem=strict in our own mount namespace: only these folders, /dev and /proc are writable."""
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    there = [place for place in writable if os.path.isdir(place)]
    for place in there:
        subprocess.run(["mount", "--rbind", place, place], check=True)
    kept = ("/dev", "/proc", "/sys", *there)
    mounted = {line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()}
    for place in sorted(mounted):
        if not any(place == one or place.startswith(f"{one}/") for one in kept):
            subprocess.run(["mount", "-o", "remount,bind,ro", place], check=False, capture_output=True)


def rights(unit: dict[str, list[str]]) -> list[str]:
    """The command that keeps only the unit's capabilities, and becomes nobody if the unit has a user."""

    def names(key: str, none: str) -> str:
        found = " ".join(unit.get(key, ())).lower().replace("cap_", "").split()
        return ",".join(["-all", *(f"+{one}" for one in found)]) if found else none

    command = ["setpriv", "--no-new-privs", f"--bounding-set={names('CapabilityBoundingSet', '-all')}"]
    if "User" not in unit:
        return command
    ambient = names("AmbientCapabilities", "-all")
    command += [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    return [*command, f"--inh-caps={ambient}", f"--ambient-caps={ambient}"]


def main() -> None:
    stages = ("mounts", "filter")
    stage = sys.argv[1] if sys.argv[1] in stages else ""
    path, *command = sys.argv[2:] if stage else sys.argv[1:]
    unit, again = service(Path(path)), [sys.executable, "-m", "tests.support.confined"]
    if stage == "mounts":
        own = [f"/var/lib/{name}" for name in unit.get("StateDirectory", ())]
        own += [place.lstrip("-") for line in unit.get("ReadWritePaths", ()) for place in line.split()]
        protect_system([*filter(None, os.environ.get("CONFINED_WRITABLE", "").split(":")), *own])
        os.umask(int(unit["UMask"][0], 8))
        command = [*rights(unit), *again, "filter", path, *command]
    elif stage == "filter":
        if "MemoryDenyWriteExecute" in unit:
            libc = ctypes.CDLL(None, use_errno=True)
            assert libc.prctl(_PR_SET_MDWE, 1, 0, 0, 0) == 0, os.strerror(ctypes.get_errno())
        filter_calls(allowed_calls(unit["SystemCallFilter"]), unit["RestrictAddressFamilies"][0].split())
    else:
        command = ["unshare", "--mount", *again, "mounts", path, *command]
    os.execvp(command[0], command)  # noqa: S606 - no shell


if __name__ == "__main__":
    main()
