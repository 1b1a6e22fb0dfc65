"""PostgreSQL's process that answers this one runs with its priority: who yields, yields as a whole."""

from __future__ import annotations

import logging
import os
import socket
import struct
from pathlib import Path
from typing import Any

LOG = logging.getLogger(__name__)


def share_priority(connection: Any, _record: Any = None) -> None:
    """Give the process behind a psycopg connection the scheduling policy and nice value of this thread.

    Only where it is certain that it runs on this machine: over a Unix socket, which names the server, and the
    server must be the process's parent. It takes the same user, root or CAP_SYS_NICE; else nothing changes.
    """
    policy, nice = os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)
    if (policy, nice) == (os.SCHED_OTHER, 0):
        return
    process = connection.info.backend_pid
    try:
        if _listener(connection.fileno()) == _parent(process):
            os.sched_setscheduler(process, policy, os.sched_param(0))
            os.setpriority(os.PRIO_PROCESS, process, nice)
    except OSError as error:
        LOG.info("PostgreSQL's process %d keeps its priority: %s", process, error.strerror)


def _listener(descriptor: int) -> int | None:
    """Who listens at the other end of a Unix socket, by process id."""
    with socket.socket(fileno=os.dup(descriptor)) as peer:
        if peer.family != socket.AF_UNIX:
            return None
        process, _, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(process)


def _parent(process: int) -> int:
    stat = Path(f"/proc/{process}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])
