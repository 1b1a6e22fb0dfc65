"""The decisions of the fabric's core, as values that the shell carries out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from fabric_app.connections import FlowEvent
from fabric_app.flow_entries import Entry
from fabric_app.flow_reports import Doubt
from fabric_app.graph import Link
from fabric_app.hosts import Host
from fabric_app.meters import MeterChanges
from fabric_app.refusals import Complaint, Refused
from flowdb.flow import PortKey


@dataclass(frozen=True, slots=True)
class Learned:
    """A host is new, has moved or has another address. ``left``: the port from which it moved."""

    host: Host
    left: PortKey | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """A host was forgotten: it answers no probe, or its port was removed or is a link."""

    host: Host


@dataclass(frozen=True, slots=True)
class LinkUp:
    """Both ports of a link have heard each other's probes."""

    link: Link


@dataclass(frozen=True, slots=True)
class LinkDown:
    """A link was lost: probes failed to arrive, or a port is down or was removed."""

    link: Link


@dataclass(frozen=True, slots=True)
class Send:
    """Send a frame out of ports of a switch."""

    dpid: int
    ports: tuple[int, ...]
    frame: bytes


@dataclass(frozen=True, slots=True)
class Probe:
    """Send each port of a switch a frame of its own: (port number, frame)."""

    dpid: int
    frames: tuple[tuple[int, bytes], ...]


@dataclass(frozen=True, slots=True)
class Put:
    """Add entries to a switch (or replace the entries in their places), and delete others."""

    dpid: int
    added: tuple[Entry, ...] = ()
    deleted: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True)
class SetMeters:
    """Change the meters of a switch. The core hears which are refused, and when all others are set."""

    dpid: int
    changes: MeterChanges


@dataclass(frozen=True, slots=True)
class ReadMeters:
    """Ask a switch for the counters of meters."""

    dpid: int
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Await:
    """Send a barrier to a switch; its reply is passed to the core with ``number``."""

    dpid: int
    number: int


@dataclass(frozen=True, slots=True)
class CallRoll:
    """Ask a switch again to report all its flows."""

    dpid: int


@dataclass(frozen=True, slots=True)
class Sweep:
    """Delete the entries of earlier controllers, by their generations."""

    dpid: int
    generations: frozenset[int]


Decision: TypeAlias = (
    Learned
    | Lost
    | LinkUp
    | LinkDown
    | Send
    | Probe
    | Put
    | SetMeters
    | ReadMeters
    | Await
    | CallRoll
    | Sweep
    | FlowEvent
    | Doubt
    | Refused
    | Complaint
)
