"""Decides which switch to ask for its port counters, and makes samples of the replies.

Pure: time comes in as an argument. At most one request per switch is open. If a switch does not reply
within ``FIRST_TIMEOUT_NS``, the app asks again and doubles the timeout, up to ``LONGEST_TIMEOUT_NS``. A lost
reply is thus repaired, and requests do not pile up at a switch that is stuck. A switch that refuses the
request, such as a plain Open vSwitch, is not asked again until it reconnects.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from flowdb.flow import NS_PER_S, PortKey
from openflow_ext.wire import PortCountersFlags, PortCountersRecord

FIRST_TIMEOUT_NS = 5 * NS_PER_S
LONGEST_TIMEOUT_NS = 320 * NS_PER_S
MAX_PORTS = 65_536
"""The largest number of records in one reply, over all its parts."""


class TooManyPorts(ValueError):
    """A reply has more than MAX_PORTS records; the message says so."""


@dataclass(frozen=True, slots=True)
class PortSample:
    """A port's counters at a time (Unix). ``name``: the port's name, empty if the switch sent none."""

    port: PortKey
    name: str
    at_ns: int
    counters: PortCountersRecord


@dataclass(slots=True)
class _Switch:
    """``xid``: of the open request, None if there is none. ``parts``: the records of its reply so far."""

    names: dict[int, str] = field(default_factory=dict)
    described: bool = False
    refuses: bool = False
    xid: int | None = None
    requested_ns: int = 0
    timeout_ns: int = FIRST_TIMEOUT_NS
    parts: list[PortCountersRecord] = field(default_factory=list)


class Sampler:
    """The connected switches and their open requests."""

    def __init__(self) -> None:
        self._switches: dict[int, _Switch] = {}

    def switch_up(self, dpid: int) -> None:
        """A switch connected. Requests of an earlier session are void."""
        self._switches[dpid] = _Switch()

    def switch_gone(self, dpid: int) -> None:
        """A switch disconnected."""
        self._switches.pop(dpid, None)

    def described(self, dpid: int) -> None:
        """A switch has sent the names of all its ports; sampling begins."""
        if switch := self._switches.get(dpid):
            switch.described = True

    def port_named(self, port: PortKey, name: str) -> None:
        """A switch sent the name of a port."""
        if switch := self._switches.get(port.dpid):
            switch.names[port.port_no] = name

    def port_gone(self, port: PortKey) -> None:
        """A switch lost a port."""
        if switch := self._switches.get(port.dpid):
            switch.names.pop(port.port_no, None)

    def due(self, now_ns: int) -> list[int]:
        """The switches to ask now: those without an open request, and those whose request timed out."""
        return [
            dpid
            for dpid, switch in self._switches.items()
            if switch.described
            and not switch.refuses
            and (switch.xid is None or now_ns - switch.requested_ns >= switch.timeout_ns)
        ]

    def asked(self, dpid: int, xid: int, now_ns: int) -> bool:
        """The app sent a request. Returns whether an earlier request timed out; its reply is ignored."""
        switch = self._switches[dpid]
        timed_out = switch.xid is not None
        if timed_out:
            switch.timeout_ns = min(2 * switch.timeout_ns, LONGEST_TIMEOUT_NS)
        switch.xid, switch.requested_ns, switch.parts = xid, now_ns, []
        return timed_out

    def on_reply(
        self, dpid: int, xid: int, records: Iterable[PortCountersRecord], more: bool, at_ns: int
    ) -> tuple[PortSample, ...] | None:
        """Take one part of a reply. Returns the samples after the last part, otherwise None.

        A reply to no open request is ignored. A port that does not carry the data plane gives no sample.
        Raises TooManyPorts.
        """
        switch = self._switches.get(dpid)
        if switch is None or switch.xid != xid:
            return None
        switch.parts.extend(records)
        if len(switch.parts) > MAX_PORTS:
            switch.parts = []
            switch.refuses = True
            raise TooManyPorts(f"its reply has more than {MAX_PORTS} ports; it is not asked again")
        if more:
            return None
        by_port = {record.port_no: record for record in switch.parts}
        switch.xid, switch.parts, switch.timeout_ns = None, [], FIRST_TIMEOUT_NS
        return tuple(
            PortSample(PortKey(dpid, port_no), switch.names.get(port_no, ""), at_ns, record)
            for port_no, record in by_port.items()
            if record.flags & PortCountersFlags.ATTACHED
        )

    def on_error(self, dpid: int, xid: int) -> bool:
        """Returns whether an error refuses the open request; such a switch is not asked again."""
        switch = self._switches.get(dpid)
        if switch is None or switch.xid != xid:
            return False
        switch.refuses = True
        return True
