"""Threads of the operating system, even in a framework that replaces Python's ``threading`` module."""

from __future__ import annotations

import sys
import threading
from types import ModuleType


def native_threading() -> ModuleType:
    """The ``threading`` module whose threads and locks are the operating system's.

    ryu-manager lets eventlet replace the standard module by green threads. There, one commit on a locked
    database would stop the whole controller. eventlet keeps the original module; without eventlet the
    standard module is the original. Call this when a thread or lock is created, not at import: eventlet may
    replace the module later.
    """
    patcher = sys.modules.get("eventlet.patcher")
    original: ModuleType = patcher.original("threading") if patcher else threading
    return original
