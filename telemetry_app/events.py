"""The event that publishes samples. An app that observes it gets telemetry_app loaded as well."""

from __future__ import annotations

from openflow_ext.engine import EventBase
from telemetry_app.core import PortSample

_SERVICE_NAME = "telemetry_app.app"  # the framework reads this name


class EventPortSamples(EventBase):
    """A sample of every port of a switch that carries the data plane, every ``[telemetry] sample_s``.

    ``samples`` is empty if no port carries it, and once when the switch disconnects: earlier samples are
    then no longer valid.
    """

    def __init__(self, dpid: int, samples: tuple[PortSample, ...]) -> None:
        super().__init__()
        self.dpid = dpid
        self.samples = samples
