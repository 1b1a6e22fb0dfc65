"""Limits how often an engine logs that a handler of an app failed. A switch may cause that without end."""

from __future__ import annotations

import logging
import time

from weir_base.log_limit import LogLimit, more_held_back

LOG_EVERY_S = 1.0


class _Limit(logging.Filter):
    """Lets one traceback about each handler pass in LOG_EVERY_S, and all records without a traceback."""

    def __init__(self) -> None:
        super().__init__()
        self._lines = LogLimit(LOG_EVERY_S)

    def filter(self, record: logging.LogRecord) -> bool:
        if not record.exc_info:
            return True
        app_handler_and_event = str(record.args)
        held_back = self._lines.passes(app_handler_and_event, time.monotonic())
        if held_back:
            record.msg = f"{record.msg}{more_held_back(held_back)}"
        return held_back is not None


_LIMIT = _Limit()


def limit(name: str) -> None:
    """Limit the tracebacks of the engine ``name``. Idempotent."""
    logging.getLogger(f"{name}.base.app_manager").addFilter(_LIMIT)
