"""The flow database as a context of Ryu or os-ken apps: ``_CONTEXTS = {"flowdb": FlowDbContext}``."""

from __future__ import annotations

import gc
import sys

from flowdb.config import FlowDbSettings
from flowdb.db import FlowDb
from flowdb.engine import FlowDbError
from flowdb.writing.process_store import ProcessStore
from weir_base.settings import load_or_exit

_SWITCH_INTERVAL_S = 0.0005
_YOUNG_OBJECTS = 100_000


class FlowDbContext(FlowDb):
    """FlowDb as configured. The framework creates one for all apps and closes it when it stops.

    A database that is down does not stop the controller. If the database can never be used as configured (a
    wrong URL, tables of another version), the process ends with one line.
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
                ProcessStore,
                waits=True,
            )
        except FlowDbError as error:
            raise SystemExit(f"weir: {error}") from error


def favour_alarms() -> None:
    """Tune Python so that an alarm waits little for garbage collection and for other threads.

    A full garbage collection visits every flow of the index, and a collection of young objects visits every
    flow that opened since the last one. Both are made rare; reference counting frees nearly all objects. A
    thread may keep the interpreter's lock for one switch interval, which is longer by default than the
    handling of an alarm, so the interval is shortened.
    """
    gc.set_threshold(_YOUNG_OBJECTS, 10, 10_000)
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
