"""Whether queues are what they say: the socket buffers of OVS's userspace datapath.

ovs-vswitchd sends through one AF_PACKET socket, whose buffer is `net.core.wmem_default` at the moment
the socket is made (its first packet). Packets that wait in a port's qdisc count against it: with the
208 KiB as shipped, OVS drops by itself once about 92 full-size packets wait, and the qdisc's limit is
never reached.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mininet_topos.errors import Unable
from mininet_topos.node import run

WANTED_BYTES = 16 * 1024 * 1024
RECEIVE_BYTES = 4 * 1024 * 1024
_RECEIVE = Path("/proc/sys/net/core/rmem_default")
_WHERE = "run the lab as root in the machine's own network namespace, where /proc/sys can be written"
_SYSCTLS = (Path("/proc/sys/net/core/wmem_max"), Path("/proc/sys/net/core/wmem_default"))


def vswitchd_pid() -> int:
    """The process id of the running ovs-vswitchd. Raises Unable."""
    rundir = Path(os.environ.get("OVS_RUNDIR", "/var/run/openvswitch"))
    try:
        return int((rundir / "ovs-vswitchd.pid").read_text())
    except (OSError, ValueError):
        raise Unable(f"no pid file of ovs-vswitchd in {rundir}: run `make setup`") from None


@dataclass(frozen=True, slots=True)
class PacketSocket:
    """One AF_PACKET socket of ovs-vswitchd: its port (`*` for the one that sends), buffer and drops."""

    ifname: str
    send_buffer_bytes: int
    receive_drops: int


def packet_sockets() -> list[PacketSocket]:
    """The packet sockets of the ovs-vswitchd that ovs-vsctl speaks to."""
    return parse_packet_sockets(run("ss", "-0", "-p", "-m", "-n"), vswitchd_pid())


def parse_packet_sockets(text: str, pid: int) -> list[PacketSocket]:
    """The sockets of one process in the output of `ss -0pmn` (skmem may stand on a line of its own)."""
    found = []
    for line in re.sub(r"\n\s+skmem", " skmem", text).splitlines():
        match = re.search(r":(\S+)\s.*\btb(\d+).*\bd(\d+)\)", line)
        if match and f",pid={pid}," in line:
            found.append(PacketSocket(match[1], int(match[2]), int(match[3])))
    return found


@contextmanager
def deep_receive_buffers() -> Iterator[None]:
    """Packet sockets that OVS opens meanwhile (for ports that it gets) hold bursts of whole TCP windows."""
    before = _read(_RECEIVE)
    _write(_RECEIVE, max(before, RECEIVE_BYTES))
    try:
        yield
    finally:
        _write(_RECEIVE, before)


def ensure_send_buffer() -> None:
    """Raise the sysctls where they are lower. Raises Unable where ovs-vswitchd already sends with less."""
    for path in _SYSCTLS:
        if _read(path) < WANTED_BYTES:
            _write(path, WANTED_BYTES)
    small = [s.send_buffer_bytes for s in packet_sockets() if s.send_buffer_bytes < WANTED_BYTES]
    if small:
        raise Unable(
            f"ovs-vswitchd sends with a buffer of {min(small)} bytes, so it would drop packets before the "
            f"queue is full: remove its bridges and run `make setup`, or restart Open vSwitch"
        )


def _read(sysctl: Path) -> int:
    try:
        return int(sysctl.read_text())
    except OSError as error:
        raise Unable(f"{_name(sysctl)} cannot be read ({error.strerror}): {_WHERE}") from error


def _write(sysctl: Path, value: int) -> None:
    try:
        sysctl.write_text(f"{value}\n")
    except OSError as error:
        raise Unable(f"{_name(sysctl)} cannot be set to {value} ({error.strerror}): {_WHERE}") from error


def _name(sysctl: Path) -> str:
    return ".".join(sysctl.relative_to("/proc/sys").parts)
