"""Leaving the processors of this machine to whoever else wants them: SCHED_IDLE (sched(7))."""

from __future__ import annotations

import logging
import os
import socket
import struct
from pathlib import Path
from typing import Any

LOG = logging.getLogger(__name__)


def yield_processors(process: int = 0) -> None:
    """Let a process (0: this one, and threads that it begins from now on) run while nobody else wants to.

    A controller that wakes gets the processor at once. For a process of a high nice value it would wait until
    the end of a slice, and its alarms with it. Raises OSError: not ours, or gone.
    """
    os.sched_setscheduler(process, os.SCHED_IDLE, os.sched_param(0))


def backend_yields(connection: Any, _record: Any = None) -> None:
    """Let the PostgreSQL process behind a psycopg connection yield as this process does, where it runs here.

    That it is this machine's is certain over a Unix socket alone: the socket names the server, and the server
    must be the process's parent. That takes the same user, root or CAP_SYS_NICE; else it keeps its priority.
    """
    if os.sched_getscheduler(0) != os.SCHED_IDLE:
        return
    process = connection.info.backend_pid
    try:
        if _listener(connection.fileno()) == _parent(process):
            yield_processors(process)
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
