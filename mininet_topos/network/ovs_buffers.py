"""Socket buffers of Open vSwitch's userspace datapath, which must be larger than the queues of the lab.

ovs-vswitchd sends through one AF_PACKET socket. The size of its buffer is `net.core.wmem_default` at the
moment at which the socket is made, with the first packet. Packets that wait in a port's qdisc count against
that buffer. With the kernel's default, Open vSwitch drops packets by itself before a qdisc reaches its limit.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mininet_topos.errors import Unable
from mininet_topos.machine.commands import run
from mininet_topos.machine.lab_state import LabState

SEND_BUFFER_BYTES = 16 * 1024 * 1024
RECEIVE_BUFFER_BYTES = 4 * 1024 * 1024
_RECEIVE_SYSCTL = Path("/proc/sys/net/core/rmem_default")
_SEND_SYSCTLS = (Path("/proc/sys/net/core/wmem_max"), Path("/proc/sys/net/core/wmem_default"))
_REMEDY = "run the lab as root in the machine's own network namespace, where /proc/sys can be written"


def vswitchd_pid() -> int:
    """Return the process id of the running ovs-vswitchd. Raises Unable."""
    rundir = Path(os.environ.get("OVS_RUNDIR", "/var/run/openvswitch"))
    try:
        return int((rundir / "ovs-vswitchd.pid").read_text())
    except (OSError, ValueError):
        raise Unable(f"no pid file of ovs-vswitchd in {rundir}: run `make setup`") from None


@dataclass(frozen=True, slots=True)
class PacketSocket:
    """One AF_PACKET socket of ovs-vswitchd. ``ifname`` is `*` for the socket that sends."""

    ifname: str
    send_buffer_bytes: int
    receive_drops: int


def packet_sockets() -> list[PacketSocket]:
    """Return the packet sockets of the ovs-vswitchd that ovs-vsctl talks to."""
    return parse_packet_sockets(run("ss", "-0", "-p", "-m", "-n"), vswitchd_pid())


def parse_packet_sockets(text: str, pid: int) -> list[PacketSocket]:
    """Return the sockets of one process from the output of `ss -0pmn`.

    Some versions of ss print `skmem` on a line of its own.
    """
    found = []
    for line in re.sub(r"\n\s+skmem", " skmem", text).splitlines():
        match = re.search(r":(\S+)\s.*\btb(\d+).*\bd(\d+)\)", line)
        if match and f",pid={pid}," in line:
            found.append(PacketSocket(match[1], int(match[2]), int(match[3])))
    return found


@contextmanager
def deep_receive_buffers(state: LabState) -> Iterator[None]:
    """Give packet sockets that Open vSwitch opens meanwhile, for new ports, room for whole TCP windows."""
    before = _read(_RECEIVE_SYSCTL)
    after = max(before, RECEIVE_BUFFER_BYTES)
    state.note_sysctl(_RECEIVE_SYSCTL, before, after)
    _write(_RECEIVE_SYSCTL, after)
    try:
        yield
    finally:
        _write(_RECEIVE_SYSCTL, before)
        state.drop_sysctl(_RECEIVE_SYSCTL)


def ensure_send_buffer() -> None:
    """Raise the sysctls if they are lower. Raises Unable if ovs-vswitchd already has a smaller buffer."""
    for path in _SEND_SYSCTLS:
        if _read(path) < SEND_BUFFER_BYTES:
            _write(path, SEND_BUFFER_BYTES)
    small = [s.send_buffer_bytes for s in packet_sockets() if s.send_buffer_bytes < SEND_BUFFER_BYTES]
    if small:
        raise Unable(
            f"ovs-vswitchd sends with a buffer of {min(small)} bytes, so it would drop packets before the "
            f"queue is full: remove its bridges and run `make setup`, or restart Open vSwitch"
        )


def _read(sysctl: Path) -> int:
    try:
        return int(sysctl.read_text())
    except OSError as error:
        raise Unable(f"{_name(sysctl)} cannot be read ({error.strerror}): {_REMEDY}") from error


def _write(sysctl: Path, value: int) -> None:
    try:
        sysctl.write_text(f"{value}\n")
    except OSError as error:
        raise Unable(f"{_name(sysctl)} cannot be set to {value} ({error.strerror}): {_REMEDY}") from error


def _name(sysctl: Path) -> str:
    return ".".join(sysctl.relative_to("/proc/sys").parts)
