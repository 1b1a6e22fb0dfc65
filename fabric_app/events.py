"""Events of fabric_app for other apps. The framework loads fabric_app with an app that observes one."""

from __future__ import annotations

from flowdb.flow import Flow
from openflow_ext.engine import EventBase

_SERVICE_NAME = "fabric_app.app"  # the framework reads it


class EventFlowOpened(EventBase):
    """Flows opened: both flows of a connection, or one flow that a switch reports."""

    def __init__(self, flows: tuple[Flow, ...]) -> None:
        super().__init__()
        self.flows = flows


class EventFlowClosed(EventBase):
    """A directed flow ended.

    ``reason``: "fin" (its sender's), "rst", "silent", "replaced" (a new flow has its 5-tuple) or "missing"
    (it ended while no controller ran). ``closed_ns``: Unix time.
    """

    def __init__(self, flow: Flow, reason: str, closed_ns: int) -> None:
        super().__init__()
        self.flow = flow
        self.reason = reason
        self.closed_ns = closed_ns
