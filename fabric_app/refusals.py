"""Refusals of the fabric: their numbers, and lines for the log at a bounded rate. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from flowdb.flow import NS_PER_S, PortKey

EVERY_NS = 10 * NS_PER_S
"""The time between two lines about the same port and reason."""
MOST_LINES = 20
"""The number of lines in this time, for all ports."""


class Reason(Enum):
    """Why something was refused. The value is the label of the metric."""

    PACKET_INS = "packet-ins"
    SEGMENTS = "segments"
    HOSTS = "hosts"
    NEW_HOSTS = "new-hosts"
    TABLE_FULL = "table-full"
    ADDRESS = "address"
    DHCP = "dhcp"


_TEXTS = {
    Reason.PACKET_INS: "packet-ins above [fabric] port_packet_ins_per_s",
    Reason.SEGMENTS: "copied TCP segments above [fabric] port_segments_per_s",
    Reason.HOSTS: "hosts above [fabric] port_hosts",
    Reason.NEW_HOSTS: "new hosts above [fabric] port_new_hosts_per_s",
    Reason.TABLE_FULL: "hosts above [fabric] max_hosts",
    Reason.ADDRESS: "claims of an address that answers at its own port",
    Reason.DHCP: "DHCP answers, because the port is not one of [fabric] dhcp_ports",
}


@dataclass(frozen=True, slots=True)
class Refused:
    """``number`` things of a port were refused. ``text`` is a line for the log, empty if none is due."""

    port: PortKey
    reason: Reason
    text: str = ""
    number: int = 1


@dataclass(frozen=True, slots=True)
class Complaint:
    """A line for the log about earlier refusals."""

    text: str


class Refusals:
    """Counts refusals, and decides which are logged.

    The first refusal of a port and reason is logged at once. The number of further ones is logged every
    ``EVERY_NS`` while there are any.
    """

    def __init__(self) -> None:
        self._unlogged: dict[tuple[PortKey, Reason], int] = {}
        self._lines = 0
        self._next_ns = 0

    def note(self, port: PortKey, reason: Reason, detail: str = "", number: int = 1) -> Refused:
        """Something is refused ``number`` times. ``detail`` is the example that the log shows."""
        key = port, reason
        is_first = key not in self._unlogged
        self._unlogged[key] = self._unlogged.get(key, -1) + number
        if not is_first or self._lines >= MOST_LINES:
            return Refused(port, reason, number=number)
        self._lines += 1
        example = f" ({detail})" if detail else ""
        return Refused(port, reason, f"port {port}: refused: {_TEXTS[reason]}{example}", number)

    def due(self, now_ns: int) -> Iterator[Complaint]:
        """The lines about refusals that followed others. Call it with every tick."""
        if now_ns < self._next_ns:
            return
        self._next_ns = now_ns + EVERY_NS
        counts = {key: count for key, count in self._unlogged.items() if count}
        self._unlogged = dict.fromkeys(counts, 0)
        self._lines = 0
        worst = sorted(counts, key=counts.__getitem__, reverse=True)
        for port, reason in worst[:MOST_LINES]:
            number = counts[port, reason]
            yield Complaint(f"port {port}: refused {number} more: {_TEXTS[reason]}")
        if worst[MOST_LINES:]:
            others = len(worst) - MOST_LINES
            yield Complaint(f"refusals of {others} more ports or reasons: see weir_fabric_refused_total")
