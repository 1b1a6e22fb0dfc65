"""Sending one file: what `weir dcudp send` does."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dcudp import connect
from dcudp.events import FileState
from dcudp.node import Options
from dcudp.statistics import ConnectionStatistics

Progress = Callable[[FileState], None]


@dataclass(frozen=True, slots=True)
class Sent:
    """A file that has arrived. ``seconds``: from the connection to the receiver's confirmation."""

    state: FileState
    seconds: float
    statistics: ConnectionStatistics

    @property
    def rate_bps(self) -> float:
        """Bits a second of the bytes that were sent."""
        return (self.state.size - self.state.resumed) * 8 / max(self.seconds, 1e-6)

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return self.state.as_json() | {
            "seconds": round(self.seconds, 6),
            "rate_bps": round(self.rate_bps),
            "connection": asdict(self.statistics),
        }


async def send_file(path: Path, name: str, peer: str, options: Options, progress: Progress) -> Sent:
    """Connect, send a file, and end. Raises DcudpError."""
    began_s = time.monotonic()
    async with await connect(peer, options) as connection:
        state = await connection.send_file(path, name, progress)
        seconds = time.monotonic() - began_s
        return Sent(state, seconds, connection.statistics())
