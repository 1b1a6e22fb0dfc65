"""The parsers of Ryu and os-ken behind the length check: messages of a switch with wrong lengths."""

from __future__ import annotations

import itertools
import random

from openflow_ext import engine, wire
from tests.support.openflow.installed_engine import Engine
from tests.support.openflow.switch_messages import MESSAGES

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


class EnginesTarget:
    """Both engines in both OpenFlow versions, in turn by chance, or one engine alone."""

    def __init__(self, names: tuple[str, ...] = engine.ENGINES) -> None:
        keys = itertools.product(names, (wire.OFP13, wire.OFP15))
        self._engines = [Engine(*key) for key in keys]

    def begin(self) -> None: ...

    def feed(self, rng: random.Random) -> bool:
        chosen = rng.choice(self._engines)
        return chosen.receive(mangled(rng, chosen.version)) is not None

    def close(self) -> None: ...
