"""The data plane in the kernel: BPF programs on ports, pinned so that they outlive the agent."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from openflow_ext.paths import artifact
from openflow_ext.switch import libbpf
from openflow_ext.switch.dataplane import (
    DataPlaneError,
    HostSettings,
    NoShare,
    NoSuchPort,
    PortSettings,
    QueueEvent,
    QueueEventKind,
    SweepTimes,
)
from openflow_ext.switch.layout import constants, ffi
from openflow_ext.switch.libbpf import BpfError
from openflow_ext.switch.pinned import BPFFS, PinnedMaps
from openflow_ext.switch.remains import INGRESS_NAME, remove_pins, take_off
from openflow_ext.switch.rulemaps import ArmedMaps
from openflow_ext.switch.rules import Rule, RuleStats
from openflow_ext.switch.share import turn_shift

NO_SCALE = 0xFF
INGRESS_TC_NAME = "weir_ingress_tc"
EGRESS_NAME = "weir_egress"
_TRACEPOINTS = ("weir_enqueue", "weir_dequeue")
_BITS_US_PER_BYTE_S = 8_000_000
_REPORT_HEADER = 8
_U32 = 0xFFFFFFFF
_PLAIN_SETTINGS = (
    "rtt_us",
    "common_rtt_us",
    "least_window_bytes",
    "cookie",
    "priority",
    "mark_mode",
    "mark_min_pkts",
    "mark_max_pkts",
)


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
            text = f"the data plane does not load: {error}"
            if fresh:
                remove_pins(folder)
            elif isinstance(error, BpfError) and error.errno == errno.EINVAL:
                text = f"what an agent left at {folder} does not fit this version of Weir, or max_flows: "
                text += f"weir switch --name {name} --detach removes it, with its counts ({error})"
            raise DataPlaneError(text) from error
        self._sweeping = threading.Lock()
        self._waiting: list[QueueEvent] = []
        self._event_offset_ns = 0
        events = self._object.map("events", ffi, "__u32", "__u32")
        self._ring = libbpf.RingBuffer(events.fd, self._take_event)
        self._reports: dict[int, bytearray] = {}
        self._lost_before = self._lost()
        reports = self._object.map("reports", ffi, "__u32", "__u32")
        self._report_ring = libbpf.RingBuffer(reports.fd, self._take_report)
        self._armed = ArmedMaps(self._maps["armed_rules"])
        if fresh:
            self.configure_host(HostSettings())

    def attach(
        self, ifindex: int, ifname: str, bridge: int, ofport: int, *, kernel_datapath: bool = False
    ) -> None:
        self.enter_port(ifindex, bridge, ofport)
        self._dropped_before.setdefault(ifindex, self._qdiscs.drops(ifindex))
        try:
            libbpf.tc_attach(ifindex, libbpf.TC_EGRESS, self.program(EGRESS_NAME))
            if kernel_datapath:
                libbpf.tc_attach(ifindex, libbpf.TC_INGRESS, self.program(INGRESS_TC_NAME))
            else:
                self._attach_xdp(ifindex, ifname)
        except BpfError as error:
            self.detach(ifindex)
            raise DataPlaneError(f"{ifname}: {error}") from error

    def enter_port(self, ifindex: int, bridge: int, ofport: int) -> None:
        """Write the port into the maps; what an earlier agent configured and counted is kept."""
        key, port = self._place_of(ifindex)
        if not port.ifindex:
            for name in ("port_states", "ack_counts"):
                self._maps[name].put(key, self._maps[name].value())
        port.place = key[0]
        port.bridge, port.ofport, port.assumed_scale = bridge, ofport, self._assumed_scale
        port.netns = os.stat("/proc/self/ns/net").st_ino & 0xFFFFFFFF
        port.ifindex = ifindex
        self._timers.put(self._timers.key(ifindex), self._timers.value(), only_new=True)
        self._maps["ports"].put(key, port)
        self._begin_epoch()

    def _place_of(self, ifindex: int) -> tuple[Any, Any]:
        """Where a port lies or may lie. Raises DataPlaneError where every place for it is taken."""
        places = list(self._places(ifindex))
        for wanted in (ifindex, 0):
            for key, port in places:
                if port.ifindex == wanted:
                    return key, port
        others = ", ".join(str(int(port.ifindex)) for _, port in places)
        raise DataPlaneError(
            f"no place for interface {ifindex} beside {others}: made anew it gets another number"
        )

    def detach(self, ifindex: int) -> None:
        try:
            take_off(ifindex)
        except BpfError as error:
            raise DataPlaneError(str(error)) from error
        self._qdiscs.remove_empty_clsact(ifindex)
        with contextlib.suppress(NoSuchPort):
            key, _ = self._find_port(ifindex)
            self._maps["ports"].put(key, self._maps["ports"].value())
        self._timers.delete(self._timers.key(ifindex))
        self._sweep(ifindex=ifindex)
        self._dropped_before.pop(ifindex, None)

    def program(self, name: str) -> int:
        """The descriptor of one of the programs, to run it on packets of one's own."""
        return self._object.program(name)

    def attached(self) -> dict[int, int]:
        return {ifindex: bridge for ifindex, (bridge, _) in self.ports().items()}

    def configure(
        self,
        ifindex: int,
        settings: PortSettings,
        capacity_bps: int,
        buffer_bytes: int = 0,
        no_share: NoShare = NoShare.NONE,
    ) -> None:
        key, port = self._find_port(ifindex)
        port.no_share = no_share
        port.buffer_bytes = min(buffer_bytes, _U32)
        port.capacity_bps, port.asked_capacity_bps = capacity_bps, settings.capacity_bps
        bdp_bytes = capacity_bps * settings.common_rtt_us // _BITS_US_PER_BYTE_S
        port.bdp_bytes = 0 if no_share else bdp_bytes
        port.turn_shift = turn_shift(capacity_bps, buffer_bytes, bdp_bytes)
        port.round_trips_ns = 2000 * settings.common_rtt_us
        port.look_ns = settings.rtt_us * 1000 // 2
        port.k_pkts = settings.k_pkts if settings.alarm else 0
        port.asked_k_pkts = settings.k_pkts
        for name in _PLAIN_SETTINGS:
            setattr(port, name, getattr(settings, name))
        self._maps["ports"].put(key, port)

    def settings(self, ifindex: int) -> tuple[PortSettings, int]:
        _, port = self._find_port(ifindex)
        plain = {name: int(getattr(port, name)) for name in _PLAIN_SETTINGS}
        settings = PortSettings(
            alarm=port.k_pkts > 0,
            k_pkts=int(port.asked_k_pkts),
            capacity_bps=int(port.asked_capacity_bps),
            **plain,
        )
        return settings, int(port.capacity_bps)

    def _follow_clock(self) -> None:
        """Reports carry Unix time: tell the programs where that clock is now."""
        settings = self._maps["settings"]
        held = settings.get(settings.key(0))
        if held is not None:
            held.unix_offset_ns = _unix_offset_ns()
            settings.put(settings.key(0), held)

    def configure_host(self, settings: HostSettings) -> None:
        held = self._maps["settings"].value()
        held.unix_offset_ns = _unix_offset_ns()
        held.report_kinds, held.simple_count = settings.report_kinds, settings.simple_count
        held.report_wakes = settings.report_wakes
        self._maps["settings"].put(self._maps["settings"].key(0), held)

    def arm(self, ifindex: int, bridge: int, rules: Sequence[Rule]) -> None:
        key, port = self._find_port(ifindex)
        self._armed.replace(bridge, ifindex, rules)
        port.armed = len(rules)
        self._maps["ports"].put(key, port)

    def armed(self, ifindex: int) -> list[tuple[Rule, RuleStats]]:
        return self._armed.of(ifindex)

    def put(self, bridge: int, rule: Rule) -> None:
        self._rules.put(bridge, rule)
        self._begin_epoch()

    def _begin_epoch(self) -> None:
        """From now on the programs look again for exact rules of flows that had none."""
        epochs = self._maps["rules_epoch"]
        held = epochs.get(epochs.key(0))
        epoch = int(held[0]) if held is not None else 0
        epochs.put(epochs.key(0), epochs.value(epoch % 0xFFFFFFFF + 1))

    def remove(self, bridge: int, rule: Rule) -> RuleStats:
        return self._rules.remove(bridge, rule)

    def expired(self) -> Iterable[tuple[int, Rule, RuleStats, bool]]:
        return self._rules.expired()

    def sweep(self, times: SweepTimes) -> int:
        self._follow_clock()
        return self._sweep(
            closed_ns=int(times.closed_s * 1e9),
            silent_ns=int(times.silent_s * 1e9),
            translated_ns=int(times.translated_s * 1e9),
            idle_ns=int(times.idle_s * 1e9),
            active_ns=int(times.active_s * 1e9),
            all=times.roll_call,
        )

    def events_fd(self) -> int:
        return self._ring.fd

    def events(self) -> list[QueueEvent]:
        self._event_offset_ns = _unix_offset_ns()
        self._ring.consume()
        waiting, self._waiting = self._waiting, []
        return waiting

    def reports_fd(self) -> int:
        return self._report_ring.fd

    def reports(self) -> tuple[dict[int, bytes], int]:
        self._report_ring.consume()
        reports, self._reports = self._reports, {}
        lost = self._lost()
        newly, self._lost_before = lost - self._lost_before, lost
        return {bridge: bytes(records) for bridge, records in reports.items()}, newly

    def _lost(self) -> int:
        held = self._maps["reports_lost"]
        counter = held.get(held.key(0))
        return int(counter[0]) if counter is not None else 0

    def close(self) -> None:
        self._ring.close()
        self._report_ring.close()
        self._object.close()
        super().close()

    def destroy(self) -> None:
        for ifindex in self.attached():
            self.detach(ifindex)
        self.close()
        remove_pins(self.folder)

    # -- loading -------------------------------------------------------------------------------

    @staticmethod
    def _load(folder: Path, max_flows: int) -> libbpf.Object:
        loading = libbpf.Object(artifact("weir.bpf.o"))
        try:
            loading.pin_maps(folder)
            for name in ("other_flows", "flow_keys", "exact_rules"):
                loading.resize(name, max_flows)
            loading.resize("flow_buckets", -(-max_flows // int(constants.WEIR_FLOWS_A_BUCKET)))
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

    def _attach_xdp(self, ifindex: int, ifname: str) -> None:
        """Native XDP on hardware, generic elsewhere; never in the place of somebody else's program.

        Native XDP on a veth costs its own copy of each packet and a detour through another queue: a program
        that does nothing took an eighth of Open vSwitch's throughput there, generic XDP a fiftieth. What an
        interface refuses, also because an earlier agent chose otherwise, is tried the other way.
        """
        program = self.program(INGRESS_NAME)
        there = libbpf.xdp_program(ifindex)
        if there and libbpf.program_name(there) != INGRESS_NAME[:15]:
            raise BpfError(errno.EBUSY, f"XDP program {there} of somebody else is there: take it off first")
        modes = [libbpf.XDP_GENERIC, libbpf.XDP_NATIVE]
        if Path("/sys/class/net", ifname, "device").exists():
            modes.reverse()
        try:
            libbpf.xdp_attach(ifindex, program, modes[0], replace=bool(there))
        except BpfError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.EEXIST):
                raise
            libbpf.xdp_attach(ifindex, program, modes[1], replace=bool(there))

    # -- running -------------------------------------------------------------------------------

    def _sweep(self, **asked_for: int) -> int:
        with self._sweeping:
            sweep = ffi.new("struct weir_sweep *", {"now_ns": time.monotonic_ns()} | asked_for)
            while not sweep.over:
                _, answer = libbpf.run(self.program("weir_sweep"), packet=bytes(ffi.buffer(sweep)))
                ffi.memmove(sweep, answer, ffi.sizeof("struct weir_sweep"))
            return int(sweep.removed)

    def _take_event(self, record: bytes) -> None:
        event = ffi.from_buffer("struct weir_event *", record)
        self._waiting.append(
            QueueEvent(
                ifindex=int(event.ifindex),
                kind=QueueEventKind(event.kind),
                queue_pkts=int(event.queue_pkts),
                queue_bytes=int(event.queue_bytes),
                n_i=int(event.n_i),
                crossing_ns=int(event.crossing_ns) + self._event_offset_ns,
                rank=int(event.rank) if event.kind == QueueEventKind.REFLEX_ON else 0,
            )
        )

    def _take_report(self, record: bytes) -> None:
        bridge = int.from_bytes(record[:4], sys.byteorder)
        self._reports.setdefault(bridge, bytearray()).extend(record[_REPORT_HEADER:])


def _unix_offset_ns() -> int:
    """CLOCK_REALTIME - CLOCK_MONOTONIC, now. What comes between the two readings only makes it less."""
    return max(time.time_ns() - time.monotonic_ns() for _ in range(3))
