"""Messages of a switch with wrong lengths, and a limit on the CPU time that a parser may take for one."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

from tests.support.openflow.switch_messages import MESSAGES

CPU_LIMIT_S = 0.5
"""A parser needs some milliseconds for the longest message. CPU time does not depend on other work."""
_LENGTHS = (0, 0, 0, 1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 17, 24, 0xFF, 0x100, 0x8000, 0xFFFF)


class Hang(BaseException):
    """A parser has not returned in time. Not an Exception, because a loop of a parser may catch that."""


def mangled(rng: random.Random, version: int) -> bytes:
    """A message with a right header, some of whose 16-bit words are replaced by other lengths."""
    data = bytearray(rng.choice(MESSAGES[version]))
    if rng.random() < 0.1 and len(data) > 8:
        at = rng.randrange(8, len(data))
        data += data[at:] * rng.randrange(1, 12)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3, 6))):
        if len(data) < 10:
            break
        at = rng.randrange(8, len(data) - 1) & ~(rng.random() < 0.8)
        word = rng.choice((*_LENGTHS, len(data), rng.getrandbits(16), rng.getrandbits(8)))
        if rng.random() < 0.8:
            data[at : at + 2] = word.to_bytes(2, "big")
        else:
            data[at] = word & 0xFF
    if rng.random() < 0.1:
        del data[rng.randrange(8, len(data) + 1) :]
    if rng.random() < 0.05:
        data[1] = rng.randrange(36)
    data = data[:0xFFFF]
    data[2:4] = len(data).to_bytes(2, "big")
    return bytes(data)


def within_limit(parse: Callable[[], Any]) -> Any:
    """What ``parse`` returns. Raises Hang if it takes too much CPU time, even if an engine catches that."""
    hung = False

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal hung
        hung = True
        raise Hang

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_LIMIT_S)
    try:
        result = parse()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    if hung:
        raise Hang
    return result
