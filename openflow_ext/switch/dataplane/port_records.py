"""The counters of many ports, read from the maps of ports in a few calls.

A port without traffic costs only the comparison of its bytes with its bytes in the last reading.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from libbpf_cffi.libbpf import Map
from openflow_ext.switch.dataplane.active_senders import (
    port_allowance_bytes,
    port_fair_share_bytes,
    turns_passed,
)
from openflow_ext.switch.dataplane.interface import NoShare
from openflow_ext.switch.dataplane.netlink import TcObject
from openflow_ext.switch.dataplane.qdiscs import Qdiscs
from openflow_ext.switch.dataplane.structs import constants, ffi
from weir_base.port_counters import PORT_COUNTERS, PortCountersFlags, PortCountersRecord

PORT_BYTES = ffi.sizeof("struct weir_port")
STATE_BYTES = ffi.sizeof("struct weir_port_state")
_ACK_BYTES = ffi.sizeof("struct weir_ack_counts")
_UNTRACKED_AT = ffi.offsetof("struct weir_port_state", "untracked")
_WIDEST_GAP = 64
"""Slots without a port that are read along with those around them, instead of by a call of their own."""
_TURNS_THAT_COUNT = 2
"""A flow that sent in the current or the last turn is an active sender."""
_U32 = 1 << 32
OBSERVE_NOTHING, OBSERVE_SHARE, OBSERVE_ALL = 0, 1 << int(constants.WEIR_FAIR_SHARE), _U32 - 1
"""struct weir_port.observes: the port changes packets; it changes none for fair shares; it changes none."""
_LIMIT_FLAGS = {
    int(constants.WEIR_LIMIT_SEGMENTS): PortCountersFlags.ALLOWANCE_AT_LEAST,
    int(constants.WEIR_LIMIT_QUEUE): PortCountersFlags.ALLOWANCE_AT_QUEUE,
    int(constants.WEIR_LIMIT_MOST): PortCountersFlags.ALLOWANCE_AT_MOST,
    int(constants.WEIR_LIMIT_ROUND_TRIP): PortCountersFlags.ALLOWANCE_AT_ROUND_TRIP,
    int(constants.WEIR_LIMIT_HANDSHAKE): PortCountersFlags.ALLOWANCE_FROM_HANDSHAKE,
}
_NAMES = {
    source: [name for name, counter in PORT_COUNTERS.items() if counter.source == source]
    for source in ("weir_port", "weir_port_state", "weir_ack_counts")
}
"""The counters that each struct holds."""


def observed(all_packets: bool, share: bool) -> int:
    """The value of struct weir_port.observes. ``share``: as a controller asked."""
    return OBSERVE_ALL if all_packets else OBSERVE_SHARE if share else OBSERVE_NOTHING


def runs(slots: Iterable[int]) -> Iterator[range]:
    """The slots as few ranges, with gaps of at most _WIDEST_GAP."""
    ordered = sorted(slots)
    if not ordered:
        return
    first = last = ordered[0]
    for slot in ordered[1:]:
        if slot - last > _WIDEST_GAP:
            yield range(first, last + 1)
            first = slot
        last = slot
    yield range(first, last + 1)


def read_slots(held: Map, slots: Collection[int], size: int) -> dict[int, bytes]:
    """The values of some slots of an array; ``size`` is that of a value."""
    found = {}
    for run in runs(slots):
        values = held.values(run.start, len(run))
        at = {slot: (slot - run.start) * size for slot in run}
        found.update({slot: values[at[slot] : at[slot] + size] for slot in slots if slot in run})
    return found


@dataclass(frozen=True, slots=True)
class _Read:
    """A port's last reading: the bytes of its structs, and what they mean.

    ``seen``: the drops that its qdisc had counted when a tracepoint saw it. ``may_differ``: the qdisc may
    have dropped packets since then, or sent some unseen. ``settled``: the same bytes will mean the same
    later, because no turn is under way.
    """

    raw: tuple[bytes, bytes, bytes]
    record: PortCountersRecord
    ifindex: int
    seen: int
    may_differ: bool
    settled: bool


class PortRecords:
    """The counters of ports. ``ports``, ``states`` and ``ack_counts`` are the maps."""

    def __init__(self, ports: Map, states: Map, ack_counts: Map, qdiscs: Qdiscs) -> None:
        self._ports, self._states, self._ack_counts = ports, states, ack_counts
        self._qdiscs = qdiscs
        self._cpus = ack_counts.value_bytes // _ACK_BYTES
        self._last: dict[int, _Read] = {}

    def one(self, slot: int) -> PortCountersRecord:
        """The counters of the port in a slot. Its qdisc is asked for its drops and its queue."""
        read = _read(self._raw([slot])[slot])
        return _as_kernel_counts(read, self._qdiscs.root(read.ifindex))

    def many(self, slots: Collection[int]) -> dict[int, PortCountersRecord]:
        """The counters of the ports in some slots.

        A qdisc is asked for its drops and its queue only if they may differ from what a tracepoint saw last:
        if packets stood in it, or if only netlink has its sum.
        """
        raw = self._raw(slots)
        last, self._last = self._last, {}
        for slot in slots:
            before = last.get(slot)
            same = before is not None and before.settled and before.raw == raw[slot]
            self._last[slot] = before if before and same else _read(raw[slot])
        asked = [read.ifindex for read in self._last.values() if read.may_differ]
        roots = self._qdiscs.roots(asked)
        return {slot: _as_kernel_counts(read, roots.get(read.ifindex)) for slot, read in self._last.items()}

    def states(self, slots: Collection[int]) -> dict[int, bytes]:
        """The bytes of struct weir_port_state of the ports in some slots."""
        return read_slots(self._states, slots, STATE_BYTES)

    def _raw(self, slots: Collection[int]) -> dict[int, tuple[bytes, bytes, bytes]]:
        ports = read_slots(self._ports, slots, PORT_BYTES)
        states = read_slots(self._states, slots, STATE_BYTES)
        acks = read_slots(self._ack_counts, slots, self._cpus * _ACK_BYTES)
        return {slot: (ports[slot], states[slot], acks[slot]) for slot in slots}


def _read(raw: tuple[bytes, bytes, bytes]) -> _Read:
    port: Any = ffi.from_buffer("struct weir_port *", raw[0])
    state: Any = ffi.from_buffer("struct weir_port_state *", raw[1])
    per_cpu: Any = ffi.from_buffer("struct weir_ack_counts[]", raw[2])
    structs = {"weir_port": [port], "weir_port_state": [state], "weir_ack_counts": per_cpu}
    values = {
        name: sum(int(getattr(one, name)) for one in structs[source])
        for source, names in _NAMES.items()
        for name in names
    }
    flags = PortCountersFlags.ATTACHED | NoShare(port.no_share).as_flags()
    if state.alarm == constants.WEIR_CONGESTED:
        flags |= PortCountersFlags.ALARM_UP
    if port.observes:
        flags |= PortCountersFlags.OBSERVES
    if port.observes == OBSERVE_ALL:
        flags |= PortCountersFlags.OFF
    if port.by_host:
        flags |= PortCountersFlags.BY_HOST
    if port.link_ns:
        flags |= PortCountersFlags.CORRECTS_ALLOWANCE
        flags |= _LIMIT_FLAGS.get(int(state.allowance_limit), PortCountersFlags.NONE)
    now_ns = time.monotonic_ns()
    return _Read(
        raw,
        PortCountersRecord(
            port_no=int(port.ofport),
            flags=flags,
            fair_share_bytes=port_fair_share_bytes(port, state, now_ns),
            drops=int(state.drops),
            allowance_bytes=min(port_allowance_bytes(port, state), _U32 - 1),
            **values,
        ),
        ifindex=int(port.ifindex),
        seen=int(state.qdisc_drops),
        may_differ=bool(state.qdisc_per_cpu or state.queue_pkts),
        settled=not port.turn_shift or turns_passed(port, state, now_ns) >= _TURNS_THAT_COUNT,
    )


def _as_kernel_counts(read: _Read, root: TcObject | None) -> PortCountersRecord:
    """The record with the queue of the root qdisc, and with the drops that no tracepoint saw.

    Some kernels skip calls of programs (docs/decisions/0030-missed-program-calls.md). The data plane can then
    know packets in a queue that is empty. ``root``: None if the qdisc was not asked.
    """
    if root is None:
        return read.record
    drops = read.record.drops + unseen_drops(root.drops, read.seen)
    return replace(read.record, drops=drops, queue_pkts=root.queue_pkts, queue_bytes=root.queue_bytes)


def unseen_drops(drops: int, seen: int) -> int:
    """The drops of a qdisc that now counts ``drops``, since it counted ``seen``.

    As in alarm_note_drops (weir_alarm.h): both have 32 bits, and a smaller number belongs to a new qdisc.
    """
    grown = (drops - seen) % _U32
    return grown if grown < _U32 // 2 else drops


def untracked(states: Mapping[int, bytes]) -> dict[int, int]:
    """The slots of the ports at which the flow table has refused flows, with the number of these flows."""
    zero = bytes(8)
    at = slice(_UNTRACKED_AT, _UNTRACKED_AT + 8)
    return {
        slot: int(ffi.from_buffer("struct weir_port_state *", state).untracked)
        for slot, state in states.items()
        if state[at] != zero
    }
