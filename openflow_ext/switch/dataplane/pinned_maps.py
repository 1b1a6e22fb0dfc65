"""The maps of a running data plane, opened from their pins: its ports, counters, rules and tracked flows."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from libbpf_cffi.libbpf import BpfError, Map, PerCpuMap, pinned_map
from openflow_ext.switch.dataplane.interface import DataPlaneError, NoSuchPort
from openflow_ext.switch.dataplane.port_records import PORT_BYTES, PortRecords
from openflow_ext.switch.dataplane.qdiscs import Qdiscs
from openflow_ext.switch.dataplane.rule_maps import RuleMaps
from openflow_ext.switch.dataplane.rules import Rule, RuleStats
from openflow_ext.switch.dataplane.structs import constants, ffi
from openflow_ext.switch.dataplane.tracked_flows import TrackedFlow, tracked
from weir_base.port_counters import PortCountersRecord

BPFFS = Path("/sys/fs/bpf")

KEY_AND_VALUE = {
    "ports": ("__u32", "struct weir_port"),
    "port_states": ("__u32", "struct weir_port_state"),
    "flow_buckets": ("__u32", "struct weir_bucket"),
    "other_flows": ("struct weir_flow_key", "struct weir_flow"),
    "settings": ("__u32", "struct weir_settings"),
    "reports_lost": ("__u32", "__u64"),
    "rules_epoch": ("__u32", "__u32"),
    "flow_keys": ("__u32", "struct weir_flow_key"),
    "opening_keys": ("__u32", "struct weir_flow_key"),
    "armed_rules": ("struct weir_exact_key", "struct weir_rule"),
    "exact_rules": ("struct weir_exact_key", "struct weir_rule"),
    "lists": ("struct weir_list_key", "struct weir_list"),
    "list_flags": ("__u32", "struct weir_flags_table"),
    "tallies": ("__u32", "struct weir_rule"),
    "reoffers": ("struct weir_flow_key", "struct weir_reoffer"),
}
"""The C types of the keys and values of the maps that the agent reads."""
_FREE = bytes(4)
"""The number of the interface, with which struct weir_port begins, in a free slot."""
PER_CPU = {"list_counts": "struct weir_counts", "ack_counts": "struct weir_ack_counts"}
"""The C types of the values of per-CPU arrays."""


def _require_own_sizes(folder: Path) -> None:
    """Raises DataPlaneError if the values have other sizes than here: they would be written past a buffer."""
    sizes = {name: ffi.sizeof(value) for name, (_, value) in KEY_AND_VALUE.items()}
    sizes |= {name: ffi.sizeof(value) for name, value in PER_CPU.items()}
    others = [name for name, size in sizes.items() if pinned_map(folder / name).shape.value_bytes != size]
    if others:
        raise DataPlaneError(
            f"the data plane at {folder} is of another version of Weir ({', '.join(others)} differ):"
            f" use that version's commands, or start this version's `weir switch`, which takes it over"
        )


class PinnedMaps:
    """The pinned maps of the data plane ``name``. Every method only reads.

    ``maps`` holds the open maps by name. Raises DataPlaneError if no data plane of this name runs.
    """

    def __init__(self, name: str = "weir") -> None:
        folder = BPFFS / name
        try:
            self.maps = {
                map_name: Map.pinned(folder / map_name, ffi, key, value)
                for map_name, (key, value) in KEY_AND_VALUE.items()
            }
            for map_name, value in PER_CPU.items():
                self.maps[map_name] = PerCpuMap.pinned(folder / map_name, ffi, "__u32", value)
        except BpfError as error:
            raise DataPlaneError(f"no data plane at {folder}: start `weir switch` first ({error})") from error
        _require_own_sizes(folder)
        names = ("exact_rules", "lists", "list_flags", "tallies", "list_counts")
        self.rule_maps = RuleMaps(*(self.maps[name] for name in names))
        self.qdiscs = Qdiscs()
        ports, states, ack_counts = (self.maps[name] for name in ("ports", "port_states", "ack_counts"))
        self.records = PortRecords(ports, states, ack_counts, self.qdiscs)

    def close(self) -> None:
        """Close the maps. Their pins stay."""
        for held in self.maps.values():
            os.close(held.fd)
        self.maps.clear()
        self.qdiscs.close()

    def ports(self) -> dict[int, tuple[int, int]]:
        """ifindex -> (bridge, OpenFlow port) of every port that carries the programs."""
        return {int(port.ifindex): (int(port.bridge), int(port.ofport)) for port in self._held_ports()}

    def slots_by_port(self) -> dict[int, int]:
        """ifindex -> slot of every port that carries the programs."""
        return {int(port.ifindex): int(port.slot) for port in self._held_ports()}

    def _held_ports(self) -> Iterator[Any]:
        ports, count = self.maps["ports"], int(constants.WEIR_MAX_PORTS)
        values = ports.values(0, count)
        for at in range(0, count * PORT_BYTES, PORT_BYTES):
            if values[at : at + 4] != _FREE:
                yield ffi.from_buffer("struct weir_port *", values[at : at + PORT_BYTES])

    @property
    def max_flows(self) -> int:
        """The number of flows that the data plane can track."""
        return self.maps["flow_keys"].size()

    def find_port(self, ifindex: int) -> tuple[Any, Any]:
        """A port's slot in the map ``ports`` (its key) and the port. Raises NoSuchPort."""
        for key, port in self.slots(ifindex):
            if port.ifindex == ifindex:
                return key, port
        raise NoSuchPort(f"interface {ifindex} does not carry the data plane")

    def slots(self, ifindex: int) -> Iterator[tuple[Any, Any]]:
        """The slots in which a port may be, in the order in which the programs look (weir_port.h)."""
        ports = self.maps["ports"]
        for step in range(int(constants.WEIR_PORT_SLOTS)):
            key = ports.key((ifindex + step) % int(constants.WEIR_MAX_PORTS))
            yield key, ports.get(key)

    def counters(self, ifindex: int) -> PortCountersRecord:
        """A port's counters. Raises NoSuchPort."""
        key, _ = self.find_port(ifindex)
        return self.records.one(key[0])

    def counters_of(self, ifindexes: Collection[int]) -> dict[int, PortCountersRecord]:
        """The counters of the ports that carry the programs, of those given. A few calls read all of them."""
        slots = {ifindex: slot for ifindex, slot in self.slots_by_port().items() if ifindex in ifindexes}
        records = self.records.many(tuple(slots.values()))
        return {ifindex: records[slot] for ifindex, slot in slots.items()}

    def flows(self) -> Iterator[TrackedFlow]:
        """The tracked flows, in no order. Each is read when the iterator reaches it."""
        return tracked(self.maps["flow_buckets"], self.maps["other_flows"])

    def rules(self, bridge: int) -> list[tuple[Rule, RuleStats]]:
        """The rules of a bridge with their counters, by table and falling priority."""
        return self.rule_maps.rules(bridge)
