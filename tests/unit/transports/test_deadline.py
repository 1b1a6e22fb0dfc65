"""The value that `transports.deadline` gives to the kernel, and the deadlines that it refuses."""

from __future__ import annotations

import math
import socket
import struct
from typing import cast

import pytest

from transports.deadline import MOST_BYTES, MOST_S, DeadlineError, set_deadline

SIZE = 1000


class Options:
    """A socket that only notes the values of its options."""

    def __init__(self) -> None:
        self.values: list[bytes] = []

    def setsockopt(self, _level: int, _name: int, value: bytes) -> None:
        self.values.append(value)


def stated(size_bytes: int, left_s: float) -> tuple[int, int]:
    """Size and time in microseconds, as the kernel gets them."""
    connection = Options()
    set_deadline(cast(socket.socket, connection), size_bytes, left_s)
    (value,) = connection.values
    size, left_us = struct.unpack("=QQ", value)
    return size, left_us


@pytest.mark.parametrize("left_s", [0, -0.0, -1e-9, -1, -1e300, -math.inf])
def test_a_time_of_0_or_less_is_a_missed_deadline(left_s: float) -> None:
    assert stated(SIZE, left_s) == (SIZE, 0)


@pytest.mark.parametrize(("left_s", "left_us"), [(1e-6, 1), (0.25, 250_000), (MOST_S, MOST_S * 1_000_000)])
def test_the_time_is_in_microseconds(left_s: float, left_us: int) -> None:
    assert stated(MOST_BYTES, left_s) == (MOST_BYTES, left_us)


@pytest.mark.parametrize(
    ("size_bytes", "left_s", "named"),
    [
        (0, 1, "size_bytes is 0"),
        (-1, 1, "size_bytes is -1"),
        (MOST_BYTES + 1, 1, "size_bytes is"),
        (SIZE, MOST_S + 1, "left_s is 3601"),
        (SIZE, math.inf, "left_s is inf"),
        (SIZE, math.nan, "left_s is nan"),
    ],
)
def test_a_deadline_that_cannot_be_is_refused(size_bytes: int, left_s: float, named: str) -> None:
    with pytest.raises(DeadlineError, match=named):
        stated(size_bytes, left_s)
