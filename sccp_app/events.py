"""What sccp_app tells other apps."""

from __future__ import annotations

from typing import Any

from openflow_ext import engine

EventBase: Any = engine.event.EventBase
_SERVICE_NAME = "sccp_app.app"  # the framework reads it


class EventPortCounters(EventBase):
    """Counters of a switch's ports, each second or so; ``counters`` as in ``wire.PortCountersRecord``."""

    def __init__(self, dpid: int, counters: tuple[Any, ...]) -> None:
        super().__init__()
        self.dpid = dpid
        self.counters = counters
