"""Events of the library as Python objects."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from dcudp.native import ffi


class Kind(IntEnum):
    """What happened: enum dcudp_kind of dcudp.h."""

    CONNECTED = 1
    MESSAGE = 2
    STREAM = 3
    WRITABLE = 4
    MODE_CHANGED = 5
    FILE_PROGRESS = 6
    FILE_DONE = 7
    FILE_FAILED = 8
    LOAD_DONE = 9
    LOAD_REFUSED = 10
    CLOSED = 11
    BROKEN = 12


@dataclass(frozen=True, slots=True)
class Event:
    """An event. The fields that its kind does not use are 0 or empty; dcudp.h lists them."""

    kind: Kind
    connection: int
    number: int
    incoming: bool
    last: bool
    done: int
    size: int
    resumed: int
    elapsed_us: int
    cpu_us: int
    data: bytes
    text: str | None
    sha256: bytes

    @classmethod
    def of(cls, raw: Any) -> Event:
        """Copy a struct dcudp_event."""
        return cls(
            kind=Kind(raw.kind),
            connection=raw.connection,
            number=raw.number,
            incoming=bool(raw.incoming),
            last=bool(raw.last),
            done=raw.done,
            size=raw.size,
            resumed=raw.resumed,
            elapsed_us=raw.elapsed_us,
            cpu_us=raw.cpu_us,
            data=bytes(ffi.buffer(raw.data, raw.data_bytes)) if raw.data_bytes else b"",
            text=bytes(ffi.string(raw.text)).decode() if raw.text else None,
            sha256=bytes(raw.hash),
        )


@dataclass(frozen=True, slots=True)
class FileState:
    """A file transfer. Sizes are in bytes.

    ``done``: what the receiver has. ``resumed``: what it had before. ``sha256``: of the whole file.
    ``is_over``: the file arrived, or the transfer failed.
    """

    name: str
    size: int
    done: int
    resumed: int
    sha256: bytes
    is_over: bool = False

    @classmethod
    def of(cls, event: Event) -> FileState:
        """The state that an event of a transfer carries."""
        is_over = event.kind is not Kind.FILE_PROGRESS
        return cls(event.data.decode(), event.size, event.done, event.resumed, event.sha256, is_over)

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "name": self.name,
            "size_bytes": self.size,
            "resumed_bytes": self.resumed,
            "sha256": self.sha256.hex(),
        }


@dataclass(frozen=True, slots=True)
class Load:
    """A measurement, as the receiver counted it.

    ``bytes``: of messages. ``elapsed_us``: from the first message to the end. ``cpu_us``: CPU time of the
    receiver's thread.
    """

    bytes: int
    elapsed_us: int
    cpu_us: int

    @property
    def rate_bps(self) -> float:
        """Bits of messages a second."""
        return self.bytes * 8e6 / max(self.elapsed_us, 1)
