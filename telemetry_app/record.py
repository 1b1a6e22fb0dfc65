"""Writes samples as rows of the flow database."""

from __future__ import annotations

from collections.abc import Iterable

from flowdb.db import FlowDb
from flowdb.models import PortSampleRow
from telemetry_app.core import PortSample

_LARGEST = 2**63 - 1


def record(flowdb: FlowDb, samples: Iterable[PortSample]) -> None:
    """Write samples. A counter has 64 bits and SQL's integers 63, so larger values are cut to the largest."""
    for sample in samples:
        values = {name: min(value, _LARGEST) for name, value in sample.counters.values().items()}
        columns = PortSampleRow.split(values)
        port = sample.port
        flowdb.merge(PortSampleRow, dpid=port.dpid, port_no=port.port_no, at_ns=sample.at_ns, **columns)
