"""The maps of a data plane that runs, opened from their pins: what `weir ports` reads."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from openflow_ext.switch.dataplane import DataPlaneError, NoShare, NoSuchPort, PortCounters
from openflow_ext.switch.layout import constants, ffi
from openflow_ext.switch.libbpf import BpfError, Map, PerCpuMap
from openflow_ext.switch.qdiscs import Qdiscs
from openflow_ext.switch.rulemaps import RuleMaps
from openflow_ext.switch.rules import Rule, RuleStats
from openflow_ext.switch.share import sharers
from openflow_ext.switch.tracked import TrackedFlow, tracked

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
    """Read-only: counters and rules. Raises DataPlaneError where no data plane runs."""

    def __init__(self, name: str = "weir") -> None:
        self.folder = BPFFS / name
        try:
            self._maps = {
                n: Map.pinned(self.folder / n, ffi, key, value) for n, (key, value) in _TYPES.items()
            }
            for n, value in _PER_CPU.items():
                self._maps[n] = PerCpuMap.pinned(self.folder / n, ffi, "__u32", value)
        except BpfError as error:
            raise DataPlaneError(
                f"no data plane at {self.folder}: start `weir switch` first ({error})"
            ) from error
        names = ("exact_rules", "lists", "list_flags", "tallies", "list_counts")
        self._rules = RuleMaps(*(self._maps[name] for name in names))
        self._qdiscs = Qdiscs()
        self._dropped_before: dict[int, int] = {}

    def close(self) -> None:
        for held in self._maps.values():
            os.close(held.fd)
        self._maps.clear()
        self._qdiscs.close()

    def ports(self) -> dict[int, tuple[int, int]]:
        """ifindex -> (bridge, OpenFlow port) of every port that carries the programs."""
        held = (port for _, port in self._maps["ports"].items() if port.ifindex)
        return {int(port.ifindex): (int(port.bridge), int(port.ofport)) for port in held}

    def _find_port(self, ifindex: int) -> tuple[Any, Any]:
        """Where a port lies (the key of its place) and what is there. Raises NoSuchPort."""
        for key, port in self._places(ifindex):
            if port.ifindex == ifindex:
                return key, port
        raise NoSuchPort(f"interface {ifindex} does not carry the data plane")

    def _places(self, ifindex: int) -> Iterator[tuple[Any, Any]]:
        """The places where a port may lie, in the order in which the programs look there (weir_port.h)."""
        ports = self._maps["ports"]
        for step in range(int(constants.WEIR_PORT_PLACES)):
            key = ports.key((ifindex + step) % int(constants.WEIR_MAX_PORTS))
            yield key, ports.get(key)

    def counters(self, ifindex: int) -> PortCounters:
        """A port's counters. Raises NoSuchPort."""
        key, port = self._find_port(ifindex)
        state: Any = self._maps["port_states"].get(key)
        acks: Any = self._maps["ack_counts"].get(key)
        flows = sharers(port, state, time.monotonic_ns())
        return PortCounters(
            n_i=int(state.n_i),
            fair_share_bytes=min(int(port.bdp_bytes) // max(flows, 1), 0xFFFFFFFF),
            alarm_up=state.alarm == constants.WEIR_CONGESTED,
            capacity_bps=int(port.capacity_bps),
            queue_pkts=int(state.queue_pkts),
            queue_bytes=int(state.queue_bytes),
            queue_max_pkts=int(state.queue_max_pkts),
            queue_max_bytes=int(state.queue_max_bytes),
            alarms=int(state.alarms),
            normals=int(state.normals),
            syns_counted=int(state.syns_counted),
            fins_counted=int(state.fins_counted),
            acks_seen=sum(int(one.seen) for one in acks),
            clamped=sum(int(one.clamped) for one in acks),
            marked=int(state.marked),
            drops=max(self._qdiscs.drops(ifindex) - self._dropped_before.get(ifindex, 0), 0),
            unscaled=int(state.unscaled),
            untracked=int(state.untracked),
            no_share=NoShare(port.no_share),
        )

    def flows(self) -> Iterator[TrackedFlow]:
        """The flows that are tracked, in no order, read as they are asked for."""
        return tracked(self._maps["flow_buckets"], self._maps["other_flows"])

    def rules(self, bridge: int) -> list[tuple[Rule, RuleStats]]:
        return self._rules.rules(bridge)
