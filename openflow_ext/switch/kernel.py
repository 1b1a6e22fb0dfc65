"""The data plane in the kernel: BPF programs on ports, pinned so that they outlive the agent."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable
from pathlib import Path

from openflow_ext.paths import artifact
from openflow_ext.switch import libbpf
from openflow_ext.switch.dataplane import (
    DataPlaneError,
    NoSuchPort,
    PortCounters,
    PortSettings,
    QueueEvent,
)
from openflow_ext.switch.layout import constants, ffi
from openflow_ext.switch.libbpf import BpfError, Map
from openflow_ext.switch.qdiscs import Qdiscs
from openflow_ext.switch.rulemaps import RuleMaps
from openflow_ext.switch.rules import Rule, RuleStats

BPFFS = Path("/sys/fs/bpf")
NO_SCALE = 0xFF
INGRESS_NAME = "weir_ingress"
EGRESS_NAME = "weir_egress"
_TRACEPOINTS = ("weir_enqueue", "weir_dequeue")
_BITS_US_PER_BYTE_S = 8_000_000

_TYPES = {
    "ports": ("__u32", "struct weir_port"),
    "port_states": ("__u32", "struct weir_port_state"),
    "flows": ("struct weir_flow_key", "struct weir_flow"),
    "exact_rules": ("struct weir_exact_key", "struct weir_exact"),
    "lists": ("struct weir_list_key", "struct weir_list"),
    "tallies": ("__u32", "struct weir_tally"),
}


class PinnedMaps:
    """The maps of a data plane that runs, opened from their pins: what `weir ports` reads."""

    def __init__(self, name: str = "weir") -> None:
        self.folder = BPFFS / name
        try:
            self._maps = {
                n: Map.pinned(self.folder / n, ffi, key, value) for n, (key, value) in _TYPES.items()
            }
        except BpfError as error:
            raise DataPlaneError(
                f"no data plane at {self.folder}: start `weir switch` first ({error})"
            ) from error
        self._rules = RuleMaps(self._maps["exact_rules"], self._maps["lists"], self._maps["tallies"])
        self._qdiscs = Qdiscs()
        self._dropped_before: dict[int, int] = {}

    def close(self) -> None:
        for held in self._maps.values():
            os.close(held.fd)
        self._maps.clear()
        self._qdiscs.close()

    def ports(self) -> dict[int, tuple[int, int]]:
        """ifindex -> (bridge, OpenFlow port) of every port that carries the programs."""
        return {int(k[0]): (int(v.bridge), int(v.ofport)) for k, v in self._maps["ports"].items()}

    def counters(self, ifindex: int) -> PortCounters:
        """A port's counters. Raises NoSuchPort."""
        key = self._maps["ports"].key(ifindex)
        port, state = self._maps["ports"].get(key), self._maps["port_states"].get(key)
        if port is None or state is None:
            raise NoSuchPort(f"interface {ifindex} does not carry the data plane")
        return PortCounters(
            n_i=int(state.n_i),
            fair_share_bytes=min(int(port.bdp_bytes) // max(int(state.n_i), 1), 0xFFFFFFFF),
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
            acks_seen=int(state.acks_seen),
            clamped=int(state.clamped),
            marked=int(state.marked),
            drops=max(self._qdiscs.drops(ifindex) - self._dropped_before.get(ifindex, 0), 0),
            unscaled=int(state.unscaled),
            untracked=int(state.untracked),
        )

    def rules(self, bridge: int) -> list[tuple[Rule, RuleStats]]:
        return self._rules.rules(bridge)


class KernelDataPlane(PinnedMaps):
    """The data plane of one host. Implements dataplane.DataPlane; see there for each method.

    `name` is the folder of its pins below /sys/fs/bpf; `max_flows` the flows that all ports hold
    together; `assumed_scale` the window scale of flows whose handshake was not seen (None: such
    flows are not clamped). Raises DataPlaneError where the kernel, the rights or the built object
    do not suffice. A data plane that an earlier agent left is adopted with all that it holds.
    """

    def __init__(
        self, name: str = "weir", max_flows: int = 1_000_000, assumed_scale: int | None = None
    ) -> None:
        self._assumed_scale = NO_SCALE if assumed_scale is None else assumed_scale
        folder = BPFFS / name
        if not os.path.ismount(BPFFS):
            raise DataPlaneError(f"{BPFFS} is not mounted: mount -t bpf bpf {BPFFS}")
        fresh = not folder.exists()
        try:
            folder.mkdir(exist_ok=True)
            self._object = self._load(folder, max_flows)
            super().__init__(name)
            self._timers = self._object.map("alarm_timers", ffi, "__u32", "struct alarm_timer")
            self._follow_queues()
        except (OSError, DataPlaneError) as error:
            if fresh:
                _remove_pins(folder)
            raise DataPlaneError(f"the data plane does not load: {error}") from error
        self._waiting: list[QueueEvent] = []
        events = self._object.map("events", ffi, "__u32", "__u32")
        self._ring = libbpf.RingBuffer(events.fd, self._take_event)

    def attach(self, ifindex: int, ifname: str, bridge: int, ofport: int) -> None:
        self.enter_port(ifindex, bridge, ofport)
        self._dropped_before.setdefault(ifindex, self._qdiscs.drops(ifindex))
        try:
            libbpf.tc_egress_attach(ifindex, self.program(EGRESS_NAME))
            self._attach_xdp(ifindex)
        except BpfError as error:
            self.detach(ifindex)
            raise DataPlaneError(f"{ifname}: {error}") from error

    def enter_port(self, ifindex: int, bridge: int, ofport: int) -> None:
        """Write the port into the maps; what an earlier agent configured and counted is kept."""
        key = self._maps["ports"].key(ifindex)
        port = self._maps["ports"].get(key) or self._maps["ports"].value()
        port.bridge, port.ofport, port.assumed_scale = bridge, ofport, self._assumed_scale
        port.netns = os.stat("/proc/self/ns/net").st_ino & 0xFFFFFFFF
        self._maps["port_states"].put(key, self._maps["port_states"].value(), only_new=True)
        self._timers.put(key, self._timers.value(), only_new=True)
        self._maps["ports"].put(key, port)

    def detach(self, ifindex: int) -> None:
        key = self._maps["ports"].key(ifindex)
        for take_off in (_detach_xdp, libbpf.tc_egress_detach):
            try:
                take_off(ifindex)
            except OSError as error:
                if error.errno not in (errno.ENODEV, errno.ENOENT, errno.EINVAL):
                    raise DataPlaneError(str(error)) from error
        self._qdiscs.remove_empty_clsact(ifindex)
        for held in (self._maps["ports"], self._timers):
            held.delete(key)
        self._sweep(ifindex=ifindex)
        self._maps["port_states"].delete(key)
        self._dropped_before.pop(ifindex, None)

    def program(self, name: str) -> int:
        """The descriptor of one of the programs, to run it on packets of one's own."""
        return self._object.program(name)

    def attached(self) -> dict[int, int]:
        return {ifindex: bridge for ifindex, (bridge, _) in self.ports().items()}

    def configure(self, ifindex: int, settings: PortSettings, capacity_bps: int) -> None:
        key = self._maps["ports"].key(ifindex)
        port = self._maps["ports"].get(key)
        if port is None:
            raise NoSuchPort(f"interface {ifindex} does not carry the data plane")
        port.capacity_bps = capacity_bps
        port.bdp_bytes = capacity_bps * settings.common_rtt_us // _BITS_US_PER_BYTE_S
        port.look_ns = settings.rtt_us * 1000 // 2
        port.k_pkts = settings.k_pkts if settings.alarm else 0
        port.least_window_bytes = settings.least_window_bytes
        self._maps["ports"].put(key, port)

    def put(self, bridge: int, rule: Rule) -> None:
        self._rules.put(bridge, rule)

    def remove(self, bridge: int, rule: Rule) -> RuleStats:
        return self._rules.remove(bridge, rule)

    def expired(self) -> Iterable[tuple[int, Rule, RuleStats, bool]]:
        return self._rules.expired()

    def sweep(self, closed_s: float = 10.0, silent_s: float = 300.0) -> int:
        return self._sweep(closed_ns=int(closed_s * 1e9), silent_ns=int(silent_s * 1e9))

    def events_fd(self) -> int:
        return self._ring.fd

    def events(self) -> list[QueueEvent]:
        self._ring.consume()
        waiting, self._waiting = self._waiting, []
        return waiting

    def close(self) -> None:
        self._ring.close()
        self._object.close()
        super().close()

    def destroy(self) -> None:
        for ifindex in self.attached():
            self.detach(ifindex)
        self.close()
        _remove_pins(self.folder)

    # -- loading -------------------------------------------------------------------------------

    @staticmethod
    def _load(folder: Path, max_flows: int) -> libbpf.Object:
        loading = libbpf.Object(artifact("weir.bpf.o"))
        try:
            loading.pin_maps(folder)
            for name in ("flows", "exact_rules"):
                loading.resize(name, max_flows)
            loading.load()
        except BpfError:
            loading.close()
            raise
        return loading

    def _follow_queues(self) -> None:
        """Attach to the qdiscs' tracepoints; an earlier agent's links give way."""
        for name in _TRACEPOINTS:
            pin = self.folder / f"{name}_link"
            if pin.exists():
                earlier = libbpf.Link.pinned(pin)
                earlier.unpin()
                earlier.destroy()
            link = self._object.attach(name)
            link.pin(pin)
            link.destroy()

    def _attach_xdp(self, ifindex: int) -> None:
        """Native XDP, else generic; never in the place of somebody else's program."""
        program = self.program(INGRESS_NAME)
        there = libbpf.xdp_program(ifindex)
        if there and libbpf.program_name(there) != INGRESS_NAME[:15]:
            raise BpfError(errno.EBUSY, f"XDP program {there} of somebody else is there: take it off first")
        try:
            libbpf.xdp_attach(ifindex, program, libbpf.XDP_NATIVE, replace=bool(there))
        except BpfError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise
            libbpf.xdp_attach(ifindex, program, libbpf.XDP_GENERIC, replace=bool(there))

    # -- running -------------------------------------------------------------------------------

    def _sweep(self, *, ifindex: int = 0, closed_ns: int = 0, silent_ns: int = 0) -> int:
        asked = ffi.new(
            "struct weir_sweep *",
            {
                "now_ns": time.monotonic_ns(),
                "closed_ns": closed_ns,
                "silent_ns": silent_ns,
                "ifindex": ifindex,
            },
        )
        context = bytearray(ffi.buffer(asked))
        libbpf.run(self.program("weir_sweep"), context=context)
        return int(ffi.from_buffer("struct weir_sweep *", context).removed)

    def _take_event(self, record: bytes) -> None:
        event = ffi.from_buffer("struct weir_event *", record)
        to_unix_ns = time.time_ns() - time.monotonic_ns()
        self._waiting.append(
            QueueEvent(
                ifindex=int(event.ifindex),
                normal=bool(event.normal),
                queue_pkts=int(event.queue_pkts),
                queue_bytes=int(event.queue_bytes),
                n_i=int(event.n_i),
                crossing_ns=int(event.crossing_ns) + to_unix_ns,
            )
        )


def _detach_xdp(ifindex: int) -> None:
    there = libbpf.xdp_program(ifindex)
    if there and libbpf.program_name(there) == INGRESS_NAME[:15]:
        libbpf.xdp_detach(ifindex)


def _remove_pins(folder: Path) -> None:
    for pin in sorted(folder.iterdir()):
        pin.unlink()
    folder.rmdir()
