"""The deadline of a socket's next message, for D2TCP (weir_d2tcp).

An application sets it just before it writes the message, without privileges. Without Python, it is
setsockopt(fd, 0x57656972, 1, value, 16). The value is two integers of 64 bits in the host's byte order: the
size of the message in bytes and the time that is left in microseconds.

The kernel's side is `deadlines.bpf.c`.

The time is relative, so that the clocks of the application and of the kernel need not agree.
"""

from __future__ import annotations

import errno
import socket
import struct

SOL_WEIR = 0x57656972
WEIR_DEADLINE = 1
MOST_BYTES = 1 << 40
MOST_S = 3600
_OPTION = struct.Struct("=QQ")


class DeadlineError(Exception):
    """A deadline cannot be set; the message states why, and a remedy."""


def set_deadline(connection: socket.socket, size_bytes: int, left_s: float) -> None:
    """State that the next ``size_bytes`` of a TCP connection are due in ``left_s`` seconds.

    The message begins with the next byte that is written to the connection, so set it before the message is
    written. It replaces the deadline before it. A time of 0 or less is a missed deadline. It has an effect
    only while the connection uses D2TCP (weir_d2tcp, weir_ap_d2tcp); without ECN, reno takes over.
    Raises DeadlineError: no size, more than 1 TB or an hour, or no D2TCP is loaded at this host.
    """
    if not 0 < size_bytes <= MOST_BYTES:
        raise DeadlineError(f"size_bytes is {size_bytes}: state the size of the message, 1 to {MOST_BYTES}")
    if not left_s <= MOST_S:
        raise DeadlineError(
            f"left_s is {left_s}: give the time that is left, at most {MOST_S} s, not a clock"
        )
    _set(connection, size_bytes, round(max(left_s, 0.0) * 1e6))


def clear_deadline(connection: socket.socket) -> None:
    """Remove the deadline of a connection; it then behaves as under DCTCP. Raises DeadlineError."""
    _set(connection, 0, 0)


def _set(connection: socket.socket, size_bytes: int, left_us: int) -> None:
    try:
        connection.setsockopt(SOL_WEIR, WEIR_DEADLINE, _OPTION.pack(size_bytes, left_us))
    except OSError as error:
        remedy = "is it a TCP socket?"
        if error.errno in (errno.ENOPROTOOPT, errno.EOPNOTSUPP):
            remedy = "weir transports load weir_d2tcp"
        raise DeadlineError(f"the kernel refuses the deadline: {error.strerror}; {remedy}") from error
