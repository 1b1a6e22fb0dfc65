"""Samples as rows of the flow database."""

from __future__ import annotations

from collections.abc import Iterable

from flowdb.db import FlowDb
from flowdb.models import PortSampleRow
from telemetry_app.core import PortSample

_COUNTED = tuple(column.name for column in PortSampleRow.__table__.columns if not column.primary_key)
"""The columns have the names of the counters."""

_LARGEST = 2**63 - 1


def record(flowdb: FlowDb, samples: Iterable[PortSample]) -> None:
    """Have samples written. Counters have 64 bits, SQL's integers 63 and a sign: larger ones stop there."""
    for sample in samples:
        counted = {name: min(getattr(sample.counters, name), _LARGEST) for name in _COUNTED}
        port = sample.port
        flowdb.merge(PortSampleRow, dpid=port.dpid, port_no=port.port_no, at_ns=sample.at_ns, **counted)
