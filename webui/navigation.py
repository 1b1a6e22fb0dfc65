"""The entries of the navigation bar. A page adds its own when its module is imported."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """A link of the navigation bar; entries stand in the order of their positions."""

    position: int
    label: str
    endpoint: str


_entries: set[Entry] = set()


def add_entry(endpoint: str, label: str, position: int) -> None:
    """Add a page to the navigation bar."""
    _entries.add(Entry(position, label, endpoint))


def entries() -> list[Entry]:
    """All entries in their order."""
    return sorted(_entries)
