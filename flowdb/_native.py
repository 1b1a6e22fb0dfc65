"""Real threads, whatever the framework has done to the standard library."""

from __future__ import annotations

import sys
import threading
from types import ModuleType


def native_threading() -> ModuleType:
    """The ``threading`` module with real threads and locks.

    ryu-manager lets eventlet replace the standard one's by green threads, where one commit on a locked
    database would hold up the whole controller. eventlet keeps the original; without eventlet nothing
    was replaced. Ask when a thread or lock is made, not at import: the replacing may come later.
    """
    patcher = sys.modules.get("eventlet.patcher")
    original: ModuleType = patcher.original("threading") if patcher else threading
    return original
