"""State moved from the maps of another version into new maps, under traffic.

The programs of the earlier version work on while the records are copied in rounds; a later round copies only
the changes. Then the new programs take the place of the earlier ones, and last rounds bring what the
earlier ones did until then. ``weir_move`` merges each change in the kernel (weir_move.h), so that a record
which both versions change loses nothing (docs/decisions/0066-upgrade-in-place.md).
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from libbpf_cffi import libbpf
from libbpf_cffi.btf import Fields
from libbpf_cffi.libbpf import Map, PerCpuMap, PinnedMap
from openflow_ext.switch.dataplane.interface import DataPlaneError
from openflow_ext.switch.dataplane.pinned_maps import KEY_AND_VALUE, PER_CPU
from openflow_ext.switch.dataplane.structs import constants as c
from openflow_ext.switch.dataplane.structs import ffi
from openflow_ext.switch.dataplane.upgrade.layouts import MEANING, Layout, fields_of, raw_map
from openflow_ext.switch.dataplane.upgrade.meanings import steps
from openflow_ext.switch.dataplane.upgrade.records import Conversion, is_padding
from weir_base.port_counters import PORT_COUNTERS

log = logging.getLogger(__name__)

WHOLE = (
    "settings",
    "ports",
    "reoffers",
    "exact_rules",
    "armed_rules",
    "lists",
    "list_flags",
    "tallies",
    "rules_epoch",
)
"""Maps that only the agent writes, except for counts. They are copied before the new programs run."""
_SHORT_ROUND_S = 0.02
_MOST_ROUNDS = 10
"""Rounds are repeated before the exchange of the programs until one is so short, or there were so many."""
_SETTLED_S = 0.02
"""After the exchange: a program that was running has ended by then."""
_STATE = "struct weir_port_state"
_SUMS = {
    "struct weir_flow": {"out_bytes"},
    _STATE: {"drops"}
    | {
        name
        for name, one in PORT_COUNTERS.items()
        if one.source == "weir_port_state" and one.kind == "counter"
    },
    "struct weir_ack_counts": {"acks_seen", "clamped"},
    "struct weir_counts": {"packets", "bytes", "clamped"},
    "struct weir_rule": {f"tally.counts.{name}" for name in ("packets", "bytes", "clamped")},
}
"""Fields to which both versions add."""
_BITS = {"struct weir_flow": {"flags", "member"}}
_N_I, _SEGMENTS, _TWO_SEGMENTS = "n_i", "segments_bytes", "two_segment_flows"
"""Fields of a port that weir_move keeps equal to the membership of its flows; N_i only if it counts flows."""

Edit = tuple[int, int, int, int]
"""(offset, enum weir_edit_kind, before, after)."""


class Edits:
    """The edits that turn one record of a C type into another one. ``simple_count``: N_i counts no flows."""

    def __init__(self, c_type: str, simple_count: bool = False) -> None:
        fields, size = fields_of(c_type), ffi.sizeof(c_type)
        self.empty = bytes(size)
        sums, left = _SUMS.get(c_type, set()), set()
        if c_type == _STATE:
            sums = sums | {_N_I} if simple_count else sums
            left = {_SEGMENTS, _TWO_SEGMENTS} | (set() if simple_count else {_N_I})
        self._cells = sorted(set(_cells(fields, sums, _BITS.get(c_type, set()), left)))

    def between(self, before: bytes, after: bytes) -> list[Edit]:
        """The edits from ``before`` to ``after``."""
        found = []
        for at, size, kind in self._cells:
            old, new = before[at : at + size], after[at : at + size]
            if old != new:
                found.append(
                    (at, kind, int.from_bytes(old, sys.byteorder), int.from_bytes(new, sys.byteorder))
                )
        return found


def _cells(fields: Fields, sums: set[str], bits: set[str], left: set[str]) -> Iterator[tuple[int, int, int]]:
    """(offset, size, kind) of the words of a record. Fields of less than 4 bytes share a word."""
    for path, (at, size) in fields.items():
        if path in left or is_padding(path):
            continue
        if size < 4:
            yield at & ~3, 4, int(c.WEIR_SET_4)
        elif path in sums:
            yield at, size, int(c.WEIR_SUM_8 if size == 8 else c.WEIR_SUM_4)
        elif path in bits:
            yield at, 4, int(c.WEIR_BITS_4)
        elif size == 8:
            yield at, 8, int(c.WEIR_SET_8)
        else:
            yield from ((word, 4, int(c.WEIR_SET_4)) for word in range(at, at + size, 4))


def send_edits(program: int, what: int, key: bytes, edits: Sequence[Edit], *, kept: bool = False) -> bool:
    """Let weir_move apply ``edits`` to a record. False: it does not exist, or the flow finds no room.

    ``program`` is the descriptor of weir_move, ``what`` is of enum weir_moved. ``kept``: the handshake of the
    flow is complete. Raises BpfError.
    """
    most, moved = int(c.WEIR_MAX_EDITS), True
    for first in range(0, len(edits), most):
        some = edits[first : first + most]
        move = ffi.new("struct weir_move *", {"what": what, "edits_len": len(some), "kept": kept})
        if what == c.WEIR_MOVED_FLOW:
            ffi.buffer(ffi.addressof(move.flow))[:] = key
        elif what in (c.WEIR_MOVED_EXACT, c.WEIR_MOVED_ARMED):
            ffi.buffer(ffi.addressof(move.exact))[:] = key
        else:
            move.index = int.from_bytes(key, sys.byteorder)
        for cell, edit in zip(move.edits, some, strict=False):
            cell.at, cell.kind, cell.before, cell.after = edit
        _, answer = libbpf.run(program, packet=bytes(ffi.buffer(move)))
        ffi.memmove(move, answer, ffi.sizeof("struct weir_move"))
        moved = moved and bool(move.moved)
    return moved


@dataclass(slots=True)
class _Source:
    """Records of one kind: how they are read, converted and compared, and their last reading by key."""

    what: int
    read: Callable[[], Iterable[tuple[bytes, bytes]]]
    convert: Callable[[bytes], bytes]
    edits: Edits
    raw: dict[bytes, bytes] = field(default_factory=dict)
    new: dict[bytes, bytes] = field(default_factory=dict)


class Move:
    """The move from the pins of a folder into new maps. Raises DataPlaneError if it would lose state.

    ``simple_count``: N_i is the paper's integer, which follows no flows.
    """

    def __init__(self, folder: Path, pinned: Mapping[str, PinnedMap], held: Layout) -> None:
        self._folder, self._pinned, self._held = folder, pinned, held
        if held.meaning > MEANING:
            raise self._refusal("they are of a newer version")
        self._maps = {
            name: raw_map(folder / name, pinned[name].shape)
            for name in (*KEY_AND_VALUE, *PER_CPU)
            if name in held.values
        }
        self._conversions = {name: self._conversion(name) for name in self._maps}
        self._keys = {name: self._key_conversion(name) for name in self._maps}
        self._bucket = _BucketFields(held.values["flow_buckets"])
        flow = ffi.sizeof("struct weir_flow")
        self._flow = Conversion(
            self._bucket.flow, fields_of("struct weir_flow"), flow, self._steps("struct weir_flow")
        )
        self._require_nothing_lost()
        simple = ffi.new("struct weir_settings *")
        for _, value in self._entries("settings"):
            _cdata(simple, self._conversions["settings"](value))
        self.simple_count = bool(simple.simple_count)
        self._program = 0
        self._new: Mapping[str, Map] = {}
        self._sources: list[_Source] = []
        self._without_room: set[bytes] = set()

    def _steps(self, c_type: str) -> Any:
        return steps(c_type, self._held.meaning, MEANING)

    def _conversion(self, name: str) -> Conversion:
        c_type = PER_CPU.get(name) or KEY_AND_VALUE[name][1]
        return Conversion(self._held.values[name], fields_of(c_type), ffi.sizeof(c_type), self._steps(c_type))

    def _key_conversion(self, name: str) -> Conversion:
        c_type = "__u32" if name in PER_CPU else KEY_AND_VALUE[name][0]
        return Conversion(self._held.keys[name], fields_of(c_type), ffi.sizeof(c_type))

    def _require_nothing_lost(self) -> None:
        lost = [
            f"{name}.{path}"
            for conversions in (self._conversions, self._keys, {"flow": self._flow})
            for name, conversion in conversions.items()
            if name != "flow_buckets"
            for path in conversion.lost
        ]
        if lost:
            self.close()
            raise self._refusal(f"it would lose {', '.join(lost)}")

    def _refusal(self, reason: str) -> DataPlaneError:
        return DataPlaneError(
            f"the maps at {self._folder} cannot be moved into those of this version: {reason}."
            f" Start the version that made them, or lose clamps, counts and translated windows with"
            f" weir switch --name {self._folder.name} --discard-state"
        )

    def ports(self) -> list[int]:
        """The interfaces that carry the programs."""
        convert = self._conversions["ports"]
        held = (convert(value) for _, value in self._entries("ports"))
        ports = (ffi.from_buffer("struct weir_port *", value) for value in held)
        return [int(port.ifindex) for port in ports if port.ifindex]

    # -- rounds ------------------------------------------------------------------------------------

    def copy(self, new: Mapping[str, Map], program: int) -> None:
        """Copy everything into the maps ``new``, which no program uses, until little changes in a round.

        ``program`` is the descriptor of weir_move. Raises DataPlaneError if a flow finds no room.
        """
        self._new, self._program = new, program
        copied = {name: self._copy_whole(name) for name in WHOLE if name in self._maps}
        self._sources = list(self._make_sources(copied))
        for _ in range(_MOST_ROUNDS):
            began = time.monotonic()
            self.follow()
            if self._without_room:
                raise DataPlaneError(
                    f"the flow table has no room for {len(self._without_room)} flows of the earlier version:"
                    f" raise max_flows"
                )
            if time.monotonic() - began < _SHORT_ROUND_S:
                return

    def follow(self) -> None:
        """Bring the changes since the last round."""
        for source in self._sources:
            for key, raw in source.read():
                if source.raw.get(key) == raw:
                    continue
                after = source.convert(raw)
                edits = source.edits.between(source.new.get(key, source.edits.empty), after)
                source.raw[key], source.new[key] = raw, after
                if edits:
                    self._send(source.what, key, after, edits)

    def finish(self) -> None:
        """The earlier programs have gone: bring their last changes."""
        self.follow()
        time.sleep(_SETTLED_S)
        self.follow()
        if self._without_room:
            log.warning("%d flows that opened during the upgrade found no room", len(self._without_room))

    def close(self) -> None:
        """Close the earlier maps. Their pins stay."""
        for held in self._maps.values():
            os.close(held.fd)
        self._maps.clear()

    def _send(self, what: int, key: bytes, after: bytes, edits: list[Edit]) -> None:
        is_flow = what == c.WEIR_MOVED_FLOW
        kept = is_flow and bool(ffi.from_buffer("struct weir_flow *", after).flags & c.WEIR_KEPT)
        if not send_edits(self._program, what, key, edits, kept=kept) and is_flow:
            self._without_room.add(key)

    # -- whole values ------------------------------------------------------------------------------

    def _copy_whole(self, name: str) -> dict[bytes, bytes]:
        """Copy a map that only the agent writes. Returns its new values by their keys."""
        convert, key_of, new = self._conversions[name], self._keys[name], self._new[name]
        copied = {}
        for key, value in self._entries(name):
            copied[key_of(key)] = convert(value)
            new.put(_cdata(new.key(), key_of(key)), _cdata(new.value(), copied[key_of(key)]))
        return copied

    def _entries(self, name: str) -> Iterator[tuple[bytes, bytes]]:
        """The entries of a map as bytes; of an array the entries that are not empty."""
        held, shape = self._maps[name], self._pinned[name].shape
        if shape.kind != _BPF_MAP_TYPE_ARRAY:
            for key, value in held.items():
                yield bytes(ffi.buffer(key)), bytes(ffi.buffer(value))
            return
        values, size = held.values(0, shape.max_entries), shape.value_bytes
        empty = bytes(size)
        for index in range(shape.max_entries):
            value = values[index * size : (index + 1) * size]
            if value != empty:
                yield index.to_bytes(4, sys.byteorder), value

    # -- records that change under traffic ---------------------------------------------------------------

    def _make_sources(self, copied: dict[str, dict[bytes, bytes]]) -> Iterator[_Source]:
        flows = Edits("struct weir_flow")
        yield _Source(int(c.WEIR_MOVED_FLOW), self._bucket_flows, self._flow, flows)
        yield self._source("other_flows", c.WEIR_MOVED_FLOW)
        yield self._source("port_states", c.WEIR_MOVED_STATE, simple_count=self.simple_count)
        for name, what in (
            ("tallies", c.WEIR_MOVED_TALLY),
            ("exact_rules", c.WEIR_MOVED_EXACT),
            ("armed_rules", c.WEIR_MOVED_ARMED),
        ):
            source = self._source(name, what)
            source.new = copied[name]
            yield source
        for name, what in (("ack_counts", c.WEIR_MOVED_ACKS), ("list_counts", c.WEIR_MOVED_LIST_COUNTS)):
            source = self._source(name, what)
            source.read = partial(self._sums, name)
            yield source

    def _source(self, name: str, what: Any, *, simple_count: bool = False) -> _Source:
        c_type = PER_CPU.get(name) or KEY_AND_VALUE[name][1]
        key_of = self._keys[name]

        def read() -> Iterator[tuple[bytes, bytes]]:
            return ((key_of(key), value) for key, value in self._entries(name))

        return _Source(int(what), read, self._conversions[name], Edits(c_type, simple_count))

    def _sums(self, name: str) -> Iterator[tuple[bytes, bytes]]:
        """The entries of a per-CPU array, with the sum of all CPUs as their value."""
        shape, fields = self._pinned[name].shape, self._held.values[name]
        counts = PerCpuMap(self._maps[name].fd, libbpf.byte_types(shape), "uint32_t", "struct value", name)
        cpus = counts.value_bytes // shape.value_bytes
        values = counts.values(0, shape.max_entries)
        empty = bytes(counts.value_bytes)
        for index in range(shape.max_entries):
            cells = values[index * len(empty) : (index + 1) * len(empty)]
            if cells == empty:
                continue
            total = bytearray(shape.value_bytes)
            for at, size in fields.values():
                starts = range(at, cpus * shape.value_bytes, shape.value_bytes)
                added = sum(int.from_bytes(cells[start : start + size], sys.byteorder) for start in starts)
                total[at : at + size] = (added % (1 << 8 * size)).to_bytes(size, sys.byteorder)
            yield index.to_bytes(4, sys.byteorder), bytes(total)

    def _bucket_flows(self) -> Iterator[tuple[bytes, bytes]]:
        """The flows in buckets, with their long keys."""
        shape, bucket = self._pinned["flow_buckets"].shape, self._bucket
        empty = bytes(shape.value_bytes)
        with self._maps["flow_buckets"].mapped() as held:
            for begin in range(0, shape.max_entries * shape.value_bytes, shape.value_bytes):
                values = held[begin : begin + shape.value_bytes]
                if values == empty:
                    continue
                for at in bucket.slots:
                    key = bucket.key(values[at:])
                    if key.ifindex:
                        start = at + bucket.flow_at
                        yield _long_key(key), values[start : start + bucket.flow_bytes]


_BPF_MAP_TYPE_ARRAY = 2
_MAPPED = (0, 0, socket.htonl(0xFFFF))
"""The first words of an IPv4 address as IPv6 address (::ffff:0:0), in network order."""


class _BucketFields:
    """Where keys and flows are in a bucket. ``slots``: their offsets."""

    def __init__(self, fields: Fields) -> None:
        first = {path: at for path, at in fields.items() if path.startswith("slots[0].")}
        self.slots = [at for path, (at, _) in fields.items() if path.endswith(".key.ifindex")]
        of_flow = {path: at for path, at in first.items() if path.startswith("slots[0].flow.")}
        self.flow_at = min(at for at, _ in of_flow.values())
        self.flow = {path[14:]: (at - self.flow_at, size) for path, (at, size) in of_flow.items()}
        self.flow_bytes = max(at + size for at, size in self.flow.values())
        keys = {path[13:]: at for path, at in first.items() if path.startswith("slots[0].key.")}
        c_type = "struct weir_ipv4_flow_key"
        self._convert = Conversion(keys, fields_of(c_type), ffi.sizeof(c_type))

    def key(self, slot: bytes) -> Any:
        """The struct weir_ipv4_flow_key of a slot."""
        return ffi.from_buffer("struct weir_ipv4_flow_key *", self._convert(slot))


def _long_key(key: Any) -> bytes:
    """The struct weir_flow_key of an IPv4 flow, as flow_key_of_segment (weir_flow_table.h) builds it."""
    made = ffi.new("struct weir_flow_key *", {"ifindex": key.ifindex})
    made.local, made.remote = (*_MAPPED, key.local), (*_MAPPED, key.remote)
    made.local_port, made.remote_port = key.local_port, key.remote_port
    return bytes(ffi.buffer(made))


def _cdata(cdata: Any, value: bytes) -> Any:
    ffi.buffer(cdata)[:] = value
    return cdata
