"""Packets that wait for Open vSwitch's thread, in the sockets by which it receives, sampled during a run."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Set
from contextlib import contextmanager, suppress
from pathlib import Path

SAMPLE_INTERVAL_S = 0.02
PACKET_SOCKETS = Path("/proc/net/packet")
Sample = tuple[int, int]
"""A time in ns, and the bytes of all packets that waited. They are the kernel's buffers (truesize), which
are larger than the packets.
"""


@contextmanager
def watching_switch(pid: int) -> Iterator[list[Sample]]:
    """Sample the bytes that wait in the packet sockets of a process while the context lasts.

    Sockets that the process opens meanwhile do not count. Raises OSError if the process does not exist.
    """
    samples: list[Sample] = []
    inodes = sockets_of(pid)
    done = threading.Event()

    def sample() -> None:
        while not done.wait(SAMPLE_INTERVAL_S):
            samples.append((time.monotonic_ns(), waiting_bytes(PACKET_SOCKETS.read_text(), inodes)))

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        done.set()
        thread.join()


def sockets_of(pid: int) -> set[str]:
    """Return the inodes of a process's sockets."""
    names = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            names.append(os.readlink(entry))
    return {name[len("socket:[") : -1] for name in names if name.startswith("socket:[")}


def waiting_bytes(text: str, inodes: Set[str]) -> int:
    """Return the sum of the received bytes (Rmem) of some sockets in the text of /proc/net/packet."""
    header, *lines = text.splitlines()
    rmem, inode = header.split().index("Rmem"), header.split().index("Inode")
    return sum(int(fields[rmem]) for fields in map(str.split, lines) if fields[inode] in inodes)
