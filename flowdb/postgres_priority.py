"""PostgreSQL's process that serves this one runs with the same scheduling priority.

Without this, a process that leaves the CPU to others would still occupy it through PostgreSQL's process.
"""

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

    This is done only if the process certainly runs on this machine: the connection is a Unix socket, whose
    peer is the server, and the server is the parent of the process. It needs the same user, root or
    CAP_SYS_NICE; without them the priority stays as it is, and a line is logged.
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
    """The process id of the peer of a Unix socket; None for another kind of socket."""
    with socket.socket(fileno=os.dup(descriptor)) as peer:
        if peer.family != socket.AF_UNIX:
            return None
        process, _, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(process)


def _parent(process: int) -> int:
    stat = Path(f"/proc/{process}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])
