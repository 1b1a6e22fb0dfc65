"""What the fabric's core decides, as values for the shell to carry out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from fabric_app.connections import FlowEvent
from fabric_app.graph import Link
from fabric_app.hosts import Host
from fabric_app.reports import Doubt
from fabric_app.routes import Entry


@dataclass(frozen=True, slots=True)
class Learned:
    """A host that is new, has moved or has another address."""

    host: Host


@dataclass(frozen=True, slots=True)
class LinkUp:
    link: Link


@dataclass(frozen=True, slots=True)
class LinkDown:
    link: Link


@dataclass(frozen=True, slots=True)
class Send:
    """Send ``frame`` out of ports of a switch."""

    dpid: int
    ports: tuple[int, ...]
    frame: bytes


@dataclass(frozen=True, slots=True)
class Put:
    """Add entries to a switch (or replace those in their place), and delete others."""

    dpid: int
    added: tuple[Entry, ...] = ()
    deleted: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True)
class Await:
    """Have a switch tell when it has done all before; the core is then told ``number``."""

    dpid: int
    number: int


@dataclass(frozen=True, slots=True)
class Sweep:
    """Delete the entries that earlier controllers, known by their generations, left."""

    dpid: int
    generations: frozenset[int]


Decision: TypeAlias = Learned | LinkUp | LinkDown | Send | Put | Await | Sweep | FlowEvent | Doubt
