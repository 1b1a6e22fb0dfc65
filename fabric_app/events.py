"""What fabric_app tells other apps. An app that observes one of these gets fabric_app loaded with it."""

from __future__ import annotations

from typing import Any

from flowdb.flow import Flow
from openflow_ext import engine

EventBase: Any = engine.event.EventBase
_SERVICE_NAME = "fabric_app.app"  # the framework reads it


class EventFlowOpened(EventBase):
    """A TCP connection opened, its client's and its server's data a ``Flow`` each; or one was found open."""

    def __init__(self, flows: tuple[Flow, ...]) -> None:
        super().__init__()
        self.flows = flows


class EventFlowClosed(EventBase):
    """A directed flow ended: its sender sent FIN, either side RST, or the 5-tuple is used anew.

    ``reason``: "fin", "rst" or "replaced". ``closed_ns``: Unix time.
    """

    def __init__(self, flow: Flow, reason: str, closed_ns: int) -> None:
        super().__init__()
        self.flow = flow
        self.reason = reason
        self.closed_ns = closed_ns
