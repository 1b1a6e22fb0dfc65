"""Writes samples as rows of the flow database."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flowdb.db import FlowDb
from flowdb.models import ALARM_UP, OBSERVES, PortSampleRow
from openflow_ext.wire import PortCountersRecord
from telemetry_app.core import PortSample

_LARGEST = 2**63 - 1


def record(flowdb: FlowDb, samples: Iterable[PortSample]) -> None:
    """Write samples. A counter has 64 bits and SQL's integers 63, so larger values are cut to the largest."""
    for sample in samples:
        port, columns = sample.port, _columns(sample.counters)
        flowdb.merge(PortSampleRow, dpid=port.dpid, port_no=port.port_no, at_ns=sample.at_ns, **columns)


def _columns(counters: PortCountersRecord) -> dict[str, Any]:
    """The counters as columns of a row."""
    values = {name: min(value, _LARGEST) for name, value in counters.values().items()}
    states = {OBSERVES: int(counters.observes), ALARM_UP: int(counters.alarm_up)}
    return PortSampleRow.split(values | states)
