"""The bytes that wait in a process's packet sockets."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from mininet_topos.measurement.switch_backlog import sockets_of, waiting_bytes

LISTING = """sk               RefCnt Type Proto  Iface R Rmem   User   Inode
000000009f724fda 2      3    0000   0     0 0      0      11
000000009f724fdb 3      3    0003   7     1 4608   0      12
000000009f724fdc 3      3    0003   8     1 2304   0      13
"""


def test_the_sockets_of_the_process_count() -> None:
    assert waiting_bytes(LISTING, {"11", "12"}) == 4608
    assert waiting_bytes(LISTING, {"12", "13", "14"}) == 6912


def test_the_inodes_of_a_process_include_those_of_its_sockets() -> None:
    with socket.socket() as one:
        assert str(os.fstat(one.fileno()).st_ino) in sockets_of(os.getpid())


def test_the_kernel_lists_what_waits_by_the_names_that_are_read() -> None:
    assert waiting_bytes(Path("/proc/net/packet").read_text(), set()) == 0
