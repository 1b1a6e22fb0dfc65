"""What fabric_app tells other apps. An app that observes one of these gets fabric_app loaded with it."""

from __future__ import annotations

from typing import Any

from flowdb.flow import Flow
from openflow_ext import engine

EventBase: Any = engine.event.EventBase
_SERVICE_NAME = "fabric_app.app"  # the framework reads it


class EventFlowOpened(EventBase):
    """Flows opened: those of a connection's client and server, or one that a switch tells of."""

    def __init__(self, flows: tuple[Flow, ...]) -> None:
        super().__init__()
        self.flows = flows


class EventFlowClosed(EventBase):
    """A directed flow ended: by its sender's FIN, an RST or silence, unheard, or as its 5-tuple is used anew.

    ``reason``: "fin", "rst", "silent", "replaced" or "missing". ``closed_ns``: Unix time.
    """

    def __init__(self, flow: Flow, reason: str, closed_ns: int) -> None:
        super().__init__()
        self.flow = flow
        self.reason = reason
        self.closed_ns = closed_ns
