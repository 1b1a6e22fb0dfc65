"""The flow database as a context of Ryu or os-ken apps: ``_CONTEXTS = {"flowdb": FlowDbContext}``."""

from __future__ import annotations

import gc

from flowdb.config import FlowDbSettings
from flowdb.db import FlowDb
from flowdb.engine import FlowDbError
from openflow_ext.settings import load_or_exit


class FlowDbContext(FlowDb):
    """FlowDb as configured; the framework makes one for all apps and closes it when it stops.

    A database that cannot be opened ends the process with one line: without it nothing would be right.
    """

    def __init__(self) -> None:
        settings = load_or_exit("flowdb", FlowDbSettings)
        spare_live_flows()
        try:
            super().__init__(
                settings.database_url,
                settings.adopt_within_s,
                settings.max_pending,
                settings.retention,
            )
        except FlowDbError as error:
            raise SystemExit(f"weir: {error}") from error


def spare_live_flows() -> None:
    """Have Python look for garbage among what is new, and hardly ever among all that lives.

    A full collection walks every flow of the index: 0.5 s for 100,000 of them, in which no alarm is answered.
    """
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, 10_000)
