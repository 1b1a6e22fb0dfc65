"""What telemetry_app tells other apps. An app that observes it gets telemetry_app loaded with it."""

from __future__ import annotations

from typing import Any

from openflow_ext import engine
from telemetry_app.core import PortSample

EventBase: Any = engine.event.EventBase
_SERVICE_NAME = "telemetry_app.app"  # the framework reads it


class EventPortSamples(EventBase):
    """What a switch's ports count, each ``[telemetry] sample_s``: a sample of every port with a data plane.

    ``samples`` is empty where no port has one, and once when the switch is gone: earlier ones no longer hold.
    """

    def __init__(self, dpid: int, samples: tuple[PortSample, ...]) -> None:
        super().__init__()
        self.dpid = dpid
        self.samples = samples
