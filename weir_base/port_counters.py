"""The counters of a switch port: the one definition in Python.

``PortCountersRecord`` is the record that travels in the OpenFlow extension. Each counter is a field of it,
and the field's metadata describes the counter. Everything else is derived from that: the wire layout, what
the agent reads from the BPF maps, the columns of ``weir ports``, the Prometheus metrics, the samples in the
flow database and the table on the dashboard's port page.

To add a counter, add it to the C struct and append a field here. ``docs/extending.md`` shows an example.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeAlias

__all__ = ["PORT_COUNTERS", "Kind", "PortCounter", "PortCountersFlags", "PortCountersRecord", "Source"]

Kind: TypeAlias = Literal["gauge", "counter"]
"""As in Prometheus: a gauge goes up and down, a counter only grows."""

Source: TypeAlias = Literal["weir_port", "weir_port_state", "weir_ack_counts", "agent"]
"""The C struct that has a member of the counter's name, or "agent" if the agent works the value out.

``weir_ack_counts`` exists once per CPU; the counter is the sum.
"""


@dataclass(frozen=True, slots=True)
class PortCounter:
    """The description of a counter.

    ``title``: a short column heading. ``help``: one sentence. ``unit``: of the value, in the plural.
    ``in_brief``: shown by default in tables that have little room. ``absent_if_zero``: 0 means that the
    port has no such value. ``recorded``: samples in the flow database include it, and so the dashboard shows
    it. ``wire_code``: the size on the wire as a code of ``struct``.
    """

    name: str
    kind: Kind
    unit: str
    title: str
    help: str
    source: Source
    wire_code: Literal["I", "Q"]
    in_brief: bool
    absent_if_zero: bool
    recorded: bool


class PortCountersFlags(enum.IntFlag):
    """The state of a port in its counters. Unknown bits, of later versions, are kept.

    ATTACHED: the port carries the data plane. ALARM_UP: its queue is congested. NO_CAPACITY, NO_QUEUE and
    TABLE_FULL: why the port counts its flows but sets no fair share. CORRECTS_ALLOWANCE: it corrects its
    allowance. ALLOWANCE_AT_LEAST, ALLOWANCE_AT_QUEUE, ALLOWANCE_AT_ROUND_TRIP and ALLOWANCE_AT_MOST: the
    bound that held the last correction. ALLOWANCE_FROM_HANDSHAKE: there was none yet. OBSERVES: it counts the
    packets that fair shares would change, and does not change them. OFF, beside OBSERVES: it changes no
    packet at all. BY_HOST: it is shared among hosts first.
    """

    NONE = 0
    ATTACHED = 1
    ALARM_UP = 2
    NO_CAPACITY = 4
    NO_QUEUE = 8
    TABLE_FULL = 16
    CORRECTS_ALLOWANCE = 32
    ALLOWANCE_AT_LEAST = 64
    ALLOWANCE_AT_QUEUE = 128
    ALLOWANCE_AT_MOST = 256
    ALLOWANCE_FROM_HANDSHAKE = 512
    OBSERVES = 1024
    OFF = 2048
    BY_HOST = 4096
    ALLOWANCE_AT_ROUND_TRIP = 8192


_ALLOWANCE_LIMITS = {
    PortCountersFlags.ALLOWANCE_AT_LEAST: "segments",
    PortCountersFlags.ALLOWANCE_AT_QUEUE: "queue",
    PortCountersFlags.ALLOWANCE_AT_MOST: "most",
    PortCountersFlags.ALLOWANCE_AT_ROUND_TRIP: "round trip",
    PortCountersFlags.ALLOWANCE_FROM_HANDSHAKE: "handshake",
    PortCountersFlags.CORRECTS_ALLOWANCE: "loop",
}
"""What determines a corrected allowance, by the first of these flags that is set."""


def _counter(
    title: str,
    unit: str,
    help: str,  # noqa: A002 - Prometheus's word
    *,
    source: Source,
    kind: Kind = "counter",
    wire_code: Literal["I", "Q"] = "Q",
    in_brief: bool = False,
    absent_if_zero: bool = False,
    recorded: bool = True,
) -> Any:
    """A dataclass field that holds a counter; the arguments are fields of PortCounter."""
    counter = {
        "title": title,
        "unit": unit,
        "help": help,
        "source": source,
        "kind": kind,
        "in_brief": in_brief,
        "absent_if_zero": absent_if_zero,
        "recorded": recorded,
    }
    return field(default=0, metadata={"wire_code": wire_code, "counter": counter})


@dataclass(frozen=True, slots=True)
class PortCountersRecord:
    """One port's counters since the data plane was attached. The fields are in wire order."""

    port_no: int = field(metadata={"wire_code": "I"})
    n_i: int = _counter(
        "N_i",
        "flows",
        "Flows counted at the port: open, and not idle for long.",
        source="weir_port_state",
        kind="gauge",
        wire_code="I",
        in_brief=True,
    )
    fair_share_bytes: int = _counter(
        "share",
        "bytes",
        "The window that SET_WINDOW(fair share) gives each active sender.",
        source="agent",
        kind="gauge",
        wire_code="I",
        in_brief=True,
        absent_if_zero=True,
    )
    flags: PortCountersFlags = field(default=PortCountersFlags.NONE, metadata={"wire_code": "I"})
    capacity_bps: int = _counter(
        "capacity", "bit/s", "The rate that the port can send.", source="weir_port", kind="gauge"
    )
    queue_pkts: int = _counter(
        "queue",
        "packets",
        "Packets in the port's queue.",
        source="weir_port_state",
        kind="gauge",
        wire_code="I",
        in_brief=True,
    )
    queue_bytes: int = _counter(
        "queue B",
        "bytes",
        "Bytes in the port's queue.",
        source="weir_port_state",
        kind="gauge",
        wire_code="I",
    )
    queue_max_pkts: int = _counter(
        "longest",
        "packets",
        "The longest that the port's queue has been, in packets.",
        source="weir_port_state",
        kind="gauge",
        wire_code="I",
        in_brief=True,
    )
    queue_max_bytes: int = _counter(
        "longest B",
        "bytes",
        "The longest that the port's queue has been, in bytes.",
        source="weir_port_state",
        kind="gauge",
        wire_code="I",
        recorded=False,
    )
    alarms: int = _counter(
        "alarms", "alarms", "Alarms that the port raised.", source="weir_port_state", in_brief=True
    )
    normals: int = _counter(
        "ends", "alarms", "Alarms of the port that ended.", source="weir_port_state", recorded=False
    )
    syns_counted: int = _counter(
        "SYNs", "segments", "SYNs that opened a counted flow.", source="weir_port_state", recorded=False
    )
    fins_counted: int = _counter(
        "FINs", "segments", "FINs that closed a counted flow.", source="weir_port_state", recorded=False
    )
    acks_seen: int = _counter(
        "ACKs", "segments", "ACKs whose window the port examined.", source="weir_ack_counts"
    )
    clamped: int = _counter(
        "clamped",
        "segments",
        "ACKs whose window the port lowered, or would lower if it did not observe.",
        source="weir_ack_counts",
        in_brief=True,
    )
    marked: int = _counter(
        "marked",
        "packets",
        "Packets that the port marked CE, or would mark if it did not observe.",
        source="weir_port_state",
    )
    drops: int = _counter(
        "drops", "packets", "Packets that the port's qdiscs dropped.", source="agent", in_brief=True
    )
    unscaled: int = _counter(
        "unscaled",
        "segments",
        "ACKs left alone because their flow's window scale is unknown.",
        source="weir_port_state",
    )
    untracked: int = _counter(
        "untracked",
        "flows",
        "Flows not counted because the flow table was full.",
        source="weir_port_state",
    )
    allowance_bytes: int = _counter(
        "allowance",
        "bytes",
        "The bytes that may be in flight towards the port.",
        source="agent",
        kind="gauge",
        wire_code="I",
        in_brief=True,
        absent_if_zero=True,
    )
    disbelieved: int = _counter(
        "disbelieved",
        "segments",
        "SYN, FIN and RST that changed nothing, because no host would believe them.",
        source="weir_port_state",
        wire_code="I",
        recorded=False,
    )
    non_tcp_bytes: int = _counter(
        "non-TCP B",
        "bytes",
        "Bytes sent to the port that are not TCP.",
        source="weir_port_state",
    )
    buffer_bytes: int = _counter(
        "buffer",
        "bytes",
        "The bytes that the port's queue can hold.",
        source="weir_port",
        kind="gauge",
        wire_code="I",
        absent_if_zero=True,
    )
    keep_alives: int = _counter(
        "keep-alives",
        "segments",
        "Keep-alives that the port sent behind segments whose receivers would have delayed their ACKs.",
        source="weir_port_state",
        wire_code="I",
        recorded=False,
    )

    @property
    def allowance_limit(self) -> str | None:
        """What determines the allowance; None if there is none.

        "fixed": capacity x common RTT. "handshake": the shortest RTT of the handshakes, until the first
        correction. "loop": the port's own corrections. Or the bound that held the last correction.
        "segments": a segment for each active sender, and at least two. "queue": what fits into the queue,
        although the link was idle; it grows further as soon as a flow stops at the end of its window. "round
        trip": that and what the link carries in the shortest round trip, although the link was idle, because
        hosts are busy. "most": the largest allowance of all.
        """
        if not self.allowance_bytes:
            return None
        return next((limit for flag, limit in _ALLOWANCE_LIMITS.items() if self.flags & flag), "fixed")

    @property
    def observes(self) -> bool:
        """Whether the port counts the packets that it would change, instead of changing them."""
        return bool(self.flags & PortCountersFlags.OBSERVES)

    @property
    def share_by(self) -> str:
        """Whether each flow or each host has an equal share: "flow" or "host"."""
        return "host" if self.flags & PortCountersFlags.BY_HOST else "flow"

    @property
    def is_off(self) -> bool:
        """Whether the port changes no packet at all."""
        return bool(self.flags & PortCountersFlags.OFF)

    @property
    def alarm_up(self) -> bool:
        """Whether the port's queue is congested."""
        return bool(self.flags & PortCountersFlags.ALARM_UP)

    def values(self) -> dict[str, int]:
        """The counters by name."""
        return {name: getattr(self, name) for name in PORT_COUNTERS}


PORT_COUNTERS: dict[str, PortCounter] = {
    one.name: PortCounter(name=one.name, wire_code=one.metadata["wire_code"], **one.metadata["counter"])
    for one in fields(PortCountersRecord)
    if "counter" in one.metadata
}
"""Every counter of a port by its name, in wire order."""
