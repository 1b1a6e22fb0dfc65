"""The fabric's own tables, behind the stages of the other apps.

=============  ==================================================================================
table          entries
=============  ==================================================================================
``events``     copy or divert to the controller what it has to see; everything else goes on
``forwarding`` output to the host, or go on if several shortest paths lead to it; flood the rest
``buckets``    one table for each bit of the flow's bucket (``paths.py``): write it to the metadata
``paths``      output to the port of destination switch and bucket
``limits``     send to the controller, limited by the meters of the port; only if the switch has meters.
               ``events`` goes there with a frame that is diverted, and resubmits a copy to it
=============  ==================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass

from app_base.pipeline import FABRIC_TABLE, FABRIC_TABLE_BEHIND_ALL
from fabric_app.paths import BUCKET_BITS


@dataclass(frozen=True, slots=True)
class FabricTables:
    """The numbers of the fabric's tables."""

    events: int
    forwarding: int
    buckets: tuple[int, ...]
    paths: int
    limits: int

    @classmethod
    def starting_at(cls, first: int) -> FabricTables:
        """Consecutive tables, the first of which is ``first``."""
        events, forwarding, *buckets, paths, limits = range(first, first + BUCKET_BITS + 4)
        return cls(events, forwarding, tuple(buckets), paths, limits)


LAYOUTS = tuple(FabricTables.starting_at(first) for first in (FABRIC_TABLE, FABRIC_TABLE_BEHIND_ALL))
"""All tables that the fabric of this or an earlier controller process may use."""
