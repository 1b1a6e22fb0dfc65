"""Whom to ask for port counters now, and what the answers say. Pure: time comes in as an argument.

A switch has at most one request open. One that does not answer is asked again after ``PATIENCE_NS``, then
after twice that, and so on up to ``MOST_PATIENCE_NS``: a message may have been lost to a malformed neighbour,
but requests must not pile up in front of a switch that is stuck. One that refuses (a plain Open vSwitch) is
left alone until it connects anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from flowdb.flow import NS_PER_S, PortKey
from openflow_ext.wire import PortCountersFlags, PortCountersRecord

PATIENCE_NS = 5 * NS_PER_S
MOST_PATIENCE_NS = 320 * NS_PER_S
MOST_PORTS = 65_536
"""The most ports of one answer; a switch that tells of more, in however many parts, is not believed."""


class TooManyPorts(ValueError):
    """An answer without an end; the message names the bound."""


@dataclass(frozen=True, slots=True)
class PortSample:
    """What a port counted up to a time (Unix). ``name``: the port's, empty where the switch told none."""

    port: PortKey
    name: str
    at_ns: int
    counters: PortCountersRecord


@dataclass(slots=True)
class _Switch:
    names: dict[int, str] = field(default_factory=dict)
    described: bool = False
    refuses: bool = False
    xid: int | None = None
    asked_ns: int = 0
    patience_ns: int = PATIENCE_NS
    parts: list[PortCountersRecord] = field(default_factory=list)


class Sampler:
    """The switches that are here, and which of them owes an answer."""

    def __init__(self) -> None:
        self._switches: dict[int, _Switch] = {}

    def switch_up(self, dpid: int) -> None:
        """A switch came, perhaps anew: what an earlier session was asked is void."""
        self._switches[dpid] = _Switch()

    def switch_gone(self, dpid: int) -> None:
        self._switches.pop(dpid, None)

    def described(self, dpid: int) -> None:
        """A switch has told all its ports' names: from now on it is asked."""
        if switch := self._switches.get(dpid):
            switch.described = True

    def port_named(self, port: PortKey, name: str) -> None:
        if switch := self._switches.get(port.dpid):
            switch.names[port.port_no] = name

    def port_gone(self, port: PortKey) -> None:
        if switch := self._switches.get(port.dpid):
            switch.names.pop(port.port_no, None)

    def due(self, now_ns: int) -> list[int]:
        """The switches to ask now: all described ones that owe nothing, and those that owe for too long."""
        return [
            dpid
            for dpid, switch in self._switches.items()
            if switch.described
            and not switch.refuses
            and (switch.xid is None or now_ns - switch.asked_ns >= switch.patience_ns)
        ]

    def asked(self, dpid: int, xid: int, now_ns: int) -> bool:
        """A switch was asked; returns whether it still owed the answer before, which is given up."""
        switch = self._switches[dpid]
        overdue = switch.xid is not None
        if overdue:
            switch.patience_ns = min(2 * switch.patience_ns, MOST_PATIENCE_NS)
        switch.xid, switch.asked_ns, switch.parts = xid, now_ns, []
        return overdue

    def on_reply(
        self, dpid: int, xid: int, records: Iterable[PortCountersRecord], more: bool, at_ns: int
    ) -> tuple[PortSample, ...] | None:
        """The samples of an answer, once its last part is here; None before, and for what was not asked.

        A port without a data plane counts nothing and gives no sample. Raises TooManyPorts.
        """
        switch = self._switches.get(dpid)
        if switch is None or switch.xid != xid:
            return None
        switch.parts.extend(records)
        if len(switch.parts) > MOST_PORTS:
            switch.parts = []
            switch.refuses = True
            raise TooManyPorts(f"it tells of more than {MOST_PORTS} ports and is not asked again")
        if more:
            return None
        told = {record.port_no: record for record in switch.parts}
        switch.xid, switch.parts, switch.patience_ns = None, [], PATIENCE_NS
        return tuple(
            PortSample(PortKey(dpid, port_no), switch.names.get(port_no, ""), at_ns, record)
            for port_no, record in told.items()
            if record.flags & PortCountersFlags.ATTACHED
        )

    def on_error(self, dpid: int, xid: int) -> bool:
        """Whether an error is a switch's refusal to tell counters; it is not asked again."""
        switch = self._switches.get(dpid)
        if switch is None or switch.xid != xid:
            return False
        switch.refuses = True
        return True
