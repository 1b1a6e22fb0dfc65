"""Decides which samples become rows of the flow database. Pure.

A sample whose counters differ from the last row's becomes a row, together with the sample before it. So the
rows show both ends of every time in which nothing changed. If nothing changes, a port gets a row every
``KEEP_ALIVE_NS``, which shows readers that it is still sampled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from flowdb.flow import NS_PER_S, PortKey
from telemetry_app.core import PortSample

KEEP_ALIVE_NS = 10 * NS_PER_S


class RowChoice:
    """The ports of all switches, each with its last row and the newest sample that became no row."""

    def __init__(self) -> None:
        self._rows: dict[int, dict[PortKey, PortSample]] = {}
        self._left_out: dict[int, dict[PortKey, PortSample]] = {}

    def choose(self, dpid: int, samples: Iterable[PortSample]) -> Iterator[PortSample]:
        """The samples to write after a reply of a switch with ``samples``, oldest first for each port."""
        written, before = self._rows.get(dpid, {}), self._left_out.get(dpid, {})
        rows: dict[PortKey, PortSample] = {}
        left_out: dict[PortKey, PortSample] = {}
        self._rows[dpid], self._left_out[dpid] = rows, left_out
        for sample in samples:
            port = sample.port
            last = written.get(port)
            if last is None or _differ(sample, last):
                if port in before:
                    yield before[port]
                yield sample
                rows[port] = sample
            elif sample.at_ns - last.at_ns >= KEEP_ALIVE_NS:
                yield sample
                rows[port] = sample
            else:
                rows[port], left_out[port] = last, sample

    def switch_gone(self, dpid: int) -> Iterator[PortSample]:
        """The newest samples of a switch that disconnected, if they became no rows."""
        self._rows.pop(dpid, None)
        yield from self._left_out.pop(dpid, {}).values()


def _differ(sample: PortSample, last: PortSample) -> bool:
    """The decoder returns the same record for the same bytes, so ``is`` answers nearly always."""
    return sample.counters is not last.counters and sample.counters != last.counters
