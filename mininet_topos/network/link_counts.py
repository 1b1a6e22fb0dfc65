"""The packets that impaired links have lost and duplicated on purpose, since they were built."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LinkCounts:
    """Sums over all links."""

    lost: int = 0
    duplicated: int = 0
