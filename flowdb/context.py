"""The flow database as a context of Ryu or os-ken apps: ``_CONTEXTS = {"flowdb": FlowDbContext}``."""

from __future__ import annotations

import gc
import sys

from flowdb.apart import StoreApart
from flowdb.config import FlowDbSettings
from flowdb.db import FlowDb
from flowdb.engine import FlowDbError
from openflow_ext.settings import load_or_exit

_SWITCH_S = 0.0005
_YOUNG = 100_000


class FlowDbContext(FlowDb):
    """FlowDb as configured; the framework makes one for all apps and closes it when it stops.

    A database that cannot be opened ends the process with one line: without it nothing would be right.
    """

    def __init__(self) -> None:
        settings = load_or_exit("flowdb", FlowDbSettings)
        favour_alarms()
        try:
            super().__init__(
                settings.database_url,
                settings.adopt_within_s,
                settings.max_pending,
                settings.retention,
                StoreApart,
            )
        except FlowDbError as error:
            raise SystemExit(f"weir: {error}") from error


def favour_alarms() -> None:
    """Have Python do without what keeps an alarm waiting.

    A full search for garbage walks every flow of the index, 0.5 s for 100,000 of them, and one of what is new
    walks all that opened since the last: so Python hardly ever looks at all that lives, and seldom at what is
    new. Most objects need no search: they go when nobody knows them any more. A thread may keep the
    interpreter's lock for a switch interval, which is 5 ms by default: an alarm takes 0.5 ms.
    """
    gc.set_threshold(_YOUNG, 10, 10_000)
    sys.setswitchinterval(_SWITCH_S)
