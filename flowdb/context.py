"""The flow database as a context of Ryu or os-ken apps: ``_CONTEXTS = {"flowdb": FlowDbContext}``."""

from __future__ import annotations

from flowdb.config import FlowDbSettings
from flowdb.db import FlowDb, FlowDbError
from openflow_ext.settings import load_or_exit


class FlowDbContext(FlowDb):
    """FlowDb as configured; the framework makes one for all apps and closes it when it stops.

    A database that cannot be opened ends the process with one line: without it nothing would be right.
    """

    def __init__(self) -> None:
        settings = load_or_exit("flowdb", FlowDbSettings)
        try:
            super().__init__(settings.database_url, settings.adopt_within_s, settings.max_pending)
        except FlowDbError as error:
            raise SystemExit(f"weir: {error}") from error
