"""The maps of a running data plane, opened from their pins: its ports, counters, rules and tracked flows."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from libbpf_cffi.libbpf import BpfError, Map, PerCpuMap
from openflow_ext.switch.dataplane.active_senders import port_active_senders
from openflow_ext.switch.dataplane.interface import DataPlaneError, NoShare, NoSuchPort
from openflow_ext.switch.dataplane.qdiscs import Qdiscs
from openflow_ext.switch.dataplane.rule_maps import RuleMaps
from openflow_ext.switch.dataplane.rules import Rule, RuleStats
from openflow_ext.switch.dataplane.structs import constants, ffi
from openflow_ext.switch.dataplane.tracked_flows import TrackedFlow, tracked
from weir_base.port_counters import PORT_COUNTERS, PortCountersFlags, PortCountersRecord
from weir_base.window import fair_share_bytes

BPFFS = Path("/sys/fs/bpf")

_TYPES = {
    "ports": ("__u32", "struct weir_port"),
    "port_states": ("__u32", "struct weir_port_state"),
    "flow_buckets": ("__u32", "struct weir_bucket"),
    "other_flows": ("struct weir_flow_key", "struct weir_flow"),
    "settings": ("__u32", "struct weir_settings"),
    "reports_lost": ("__u32", "__u64"),
    "rules_epoch": ("__u32", "__u32"),
    "armed_rules": ("struct weir_exact_key", "struct weir_rule"),
    "exact_rules": ("struct weir_exact_key", "struct weir_rule"),
    "lists": ("struct weir_list_key", "struct weir_list"),
    "list_flags": ("__u32", "struct weir_flags_table"),
    "tallies": ("__u32", "struct weir_rule"),
}
_PER_CPU = {"list_counts": "struct weir_counts", "ack_counts": "struct weir_ack_counts"}


class PinnedMaps:
    """The pinned maps of the data plane ``name``. Every method only reads.

    ``maps`` holds the open maps by name. Raises DataPlaneError if no data plane of this name runs.
    """

    def __init__(self, name: str = "weir") -> None:
        folder = BPFFS / name
        try:
            self.maps = {
                map_name: Map.pinned(folder / map_name, ffi, key, value)
                for map_name, (key, value) in _TYPES.items()
            }
            for map_name, value in _PER_CPU.items():
                self.maps[map_name] = PerCpuMap.pinned(folder / map_name, ffi, "__u32", value)
        except BpfError as error:
            raise DataPlaneError(f"no data plane at {folder}: start `weir switch` first ({error})") from error
        names = ("exact_rules", "lists", "list_flags", "tallies", "list_counts")
        self.rule_maps = RuleMaps(*(self.maps[name] for name in names))
        self.qdiscs = Qdiscs()

    def close(self) -> None:
        """Close the maps. Their pins stay."""
        for held in self.maps.values():
            os.close(held.fd)
        self.maps.clear()
        self.qdiscs.close()

    def ports(self) -> dict[int, tuple[int, int]]:
        """ifindex -> (bridge, OpenFlow port) of every port that carries the programs."""
        held = (port for _, port in self.maps["ports"].items() if port.ifindex)
        return {int(port.ifindex): (int(port.bridge), int(port.ofport)) for port in held}

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

    def counters(self, ifindex: int, earlier_drops: int = 0) -> PortCountersRecord:
        """A port's counters. ``earlier_drops`` are left out of its drops. Raises NoSuchPort."""
        key, port = self.find_port(ifindex)
        state: Any = self.maps["port_states"].get(key)
        per_cpu: Any = self.maps["ack_counts"].get(key)
        structs = {"weir_port": [port], "weir_port_state": [state], "weir_ack_counts": per_cpu}
        values = {
            name: sum(int(getattr(one, name)) for one in structs[counter.source])
            for name, counter in PORT_COUNTERS.items()
            if counter.source in structs
        }
        allowance_bytes = int((port.link_ns and state.allowance_bytes) or port.bdp_bytes)
        flags = PortCountersFlags.ATTACHED | NoShare(port.no_share).as_flags()
        if state.alarm == constants.WEIR_CONGESTED:
            flags |= PortCountersFlags.ALARM_UP
        flows = port_active_senders(port, state, time.monotonic_ns())
        return PortCountersRecord(
            port_no=int(port.ofport),
            flags=flags,
            fair_share_bytes=fair_share_bytes(allowance_bytes, flows),
            drops=max(self.qdiscs.drops(ifindex) - earlier_drops, 0),
            **values,
        )

    def flows(self) -> Iterator[TrackedFlow]:
        """The tracked flows, in no order. Each is read when the iterator reaches it."""
        return tracked(self.maps["flow_buckets"], self.maps["other_flows"])

    def rules(self, bridge: int) -> list[tuple[Rule, RuleStats]]:
        """The rules of a bridge with their counters, by table and falling priority."""
        return self.rule_maps.rules(bridge)
