"""The order of the flow tables: the stages of the apps that run, then the tables of the fabric. Pure.

In OpenFlow a packet can only go to a table with a higher number. Normally the fabric's tables follow directly
behind tables 0 and 1. If a stage with a higher table runs, they are behind all tables that a stage can have.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

COOKIE_MASK = 0xFFFF_FFFF_0000_0000
"""The half of a cookie that names the app; the lower half is the app's own."""
FABRIC_COOKIE = 0x5745_4901_0000_0000

FIRST_TABLES = (0, 1)
"""The stage tables that are always linked, because packets enter at table 0. SDTCP and SCCP have them."""
FURTHER_TABLES = range(10, 32)
"""The tables of other packages' stages. The data plane holds extension entries of tables 0 to 31."""

FABRIC_TABLE = 2
"""The first table of the fabric, as long as no stage of another package runs."""
FABRIC_TABLE_BEHIND_ALL = FURTHER_TABLES.stop


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The tables of the stages that run, in ascending order, and the first table of the fabric."""

    stage_tables: tuple[int, ...] = FIRST_TABLES
    fabric_table: int = FABRIC_TABLE

    @classmethod
    def of(cls, running_tables: Iterable[int]) -> Pipeline:
        """The pipeline while the stages with these tables run."""
        further = set(running_tables) - set(FIRST_TABLES)
        if not further:
            return cls()
        return cls((*FIRST_TABLES, *sorted(further)), FABRIC_TABLE_BEHIND_ALL)

    @property
    def links(self) -> tuple[tuple[int, int], ...]:
        """Each stage's table, paired with the table to which its packets go next."""
        return tuple(pairwise((*self.stage_tables, self.fabric_table)))

    def next_table(self, table: int) -> int:
        """The table behind a stage's ``table``."""
        return dict(self.links)[table]
