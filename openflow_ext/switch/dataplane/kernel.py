"""The data plane in the kernel: BPF programs on ports, pinned so that they outlive the agent."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from libbpf_cffi import libbpf
from libbpf_cffi.libbpf import BpfError
from openflow_ext.switch.dataplane.active_senders import turn_shift
from openflow_ext.switch.dataplane.flow_table_size import default_max_flows, held_max_flows
from openflow_ext.switch.dataplane.interface import (
    DataPlaneError,
    HostSettings,
    NoShare,
    NoSuchPort,
    PortSettings,
    QueueEvent,
    QueueEventKind,
    SweepTimes,
)
from openflow_ext.switch.dataplane.last_sweep import LastSweep
from openflow_ext.switch.dataplane.pinned_maps import BPFFS, PinnedMaps
from openflow_ext.switch.dataplane.port_records import observed, untracked
from openflow_ext.switch.dataplane.removal import (
    INGRESS_NAME,
    INGRESS_TC_NAME,
    carries_programs,
    detach_ingress_tc,
    detach_programs,
    detach_xdp,
    is_named,
    next_folder,
    old_folder,
    remove_data_plane,
    remove_pins,
)
from openflow_ext.switch.dataplane.rule_maps import ArmedMaps
from openflow_ext.switch.dataplane.rules import Rule, RuleStats
from openflow_ext.switch.dataplane.structs import constants, ffi
from openflow_ext.switch.dataplane.upgrade import pins
from openflow_ext.switch.dataplane.upgrade.move import Move, send_edits
from weir_base.paths import artifact
from weir_base.port_counters import PortCountersRecord
from weir_base.window import bdp_bytes, drain_ns

log = logging.getLogger(__name__)

NO_SCALE = 0xFF
EGRESS_NAME = "weir_egress"
MOVE_NAME = "weir_move"
_LOADED_WHEN_USED = (INGRESS_NAME, INGRESS_TC_NAME, MOVE_NAME)
"""A bridge uses one of the first two, by the kind of its datapath, and an upgrade the last one. The verifier
takes 0.3 s for each form of the ingress."""
_TRACEPOINTS = ("weir_enqueue", "weir_dequeue")
_REPORT_HEADER_BYTES = 8
_U32_MAX = 0xFFFFFFFF
_NEVER_NS = (1 << 64) - 1
_SHORT_TURN_RTTS = 2
_LEAST_CHECK_NS = 50_000
"""Half of an RTT of 100 us. If a queue were checked more often during an alarm, a CPU would be busy."""
_OPENING_FRACTION, _LEAST_OPENING = 4, 1024
"""The reserve for flows that are being opened, beside max_flows: this part of them, and at least so many."""
_LINK_NS_BYTES = 1 << 16
"""struct weir_port.link_ns is the time of so many bytes on the link."""
_COPIED_SETTINGS = (
    "rtt_us",
    "common_rtt_us",
    "least_window_bytes",
    "cookie",
    "priority",
    "mark_mode",
    "mark_min_pkts",
    "mark_max_pkts",
    "omits",
)
"""The fields of PortSettings that struct weir_port holds under the same name."""


class KernelDataPlane:
    """The data plane of one host. It implements interface.DataPlane, which documents each method.

    ``name`` is the folder of its pins below /sys/fs/bpf. ``max_flows`` is the number of flows that all ports
    track together; None: that of an earlier agent, else one for this machine. ``assumed_scale`` is the window
    scale of flows whose handshake was not seen; None: the data plane does not clamp such flows. The data
    plane of an earlier agent is adopted with its contents. If its maps have another layout or size, their
    contents are moved into new maps while the programs run. ``discard_state``: they are removed instead.

    Raises DataPlaneError if the kernel, the permissions or the built object do not suffice, or if a move
    would lose state; nothing has changed then.
    """

    def __init__(
        self,
        name: str = "weir",
        max_flows: int | None = None,
        assumed_scale: int | None = None,
        *,
        discard_state: bool = False,
    ) -> None:
        self.folder = BPFFS / name
        self._assumed_scale = NO_SCALE if assumed_scale is None else assumed_scale
        if not os.path.ismount(BPFFS):
            raise DataPlaneError(f"{BPFFS} is not mounted: mount -t bpf bpf {BPFFS}")
        self._pins = self.folder
        made = None
        undo = contextlib.ExitStack()
        try:
            pins.settle(self.folder)
            if discard_state and self.folder.exists():
                log.warning("the clamps, counts and flows at %s are discarded", self.folder)
                remove_data_plane(name)
            self._max_flows = max_flows or held_max_flows(self.folder) or default_max_flows()
            move = self._needed_move()
            fresh = not self.folder.exists()
            self._pins = next_folder(self.folder) if move else self.folder
            made = self._pins if move or fresh else None
            self._pins.mkdir(exist_ok=True)
            self._when_used: dict[str, libbpf.Object] = {}
            self._object = self._load(lambda name: name in _LOADED_WHEN_USED)
            undo.callback(self._object.close)
            self.pinned = PinnedMaps(self._pins.name)
            undo.callback(self.pinned.close)
            self._timers = self._object.map("alarm_timers", ffi, "__u32", "struct alarm_timer")
            self._maps = self.pinned.maps
            if move:
                undo.callback(move.close)
                self._take_over(move)
            else:
                self._attach_tracepoints()
        except DataPlaneError:
            undo.close()
            self._forget(made)
            raise
        except OSError as error:
            undo.close()
            self._forget(made)
            raise DataPlaneError(f"the data plane cannot be loaded: {error}") from error
        self._slots = self.pinned.slots_by_port()
        self._unix_offset_ns = _unix_offset_ns()
        self._sweeping = threading.RLock()
        self._closed = False
        self._last_sweep = LastSweep()
        self._events: list[QueueEvent] = []
        events = self._object.map("events", ffi, "__u32", "__u32")
        self._event_ring = libbpf.RingBuffer(events.fd, self._take_event)
        self._reports: dict[int, bytearray] = {}
        self._lost_before = self._lost()
        reports = self._object.map("reports", ffi, "__u32", "__u32")
        self._report_ring = libbpf.RingBuffer(reports.fd, self._take_report)
        self._armed = ArmedMaps(self._maps["armed_rules"])
        self._state_meaning()
        if fresh:
            self.configure_host(HostSettings())

    def _needed_move(self) -> Move | None:
        """The move from the maps of another version. Raises DataPlaneError, BpfError."""
        opened = self._open(lambda _: True)
        try:
            return pins.examine(self.folder, opened.shapes())
        finally:
            opened.close()

    def _take_over(self, move: Move) -> None:
        """Move the state of an earlier version, and exchange its programs for the new ones.

        The programs of a port are exchanged one by one, each at once: every packet meets one version.
        """
        ports = move.ports()
        hooked = [ifindex for ifindex in ports if libbpf.tc_program(ifindex, libbpf.TC_EGRESS)]
        in_kernel = {ifindex: libbpf.tc_program(ifindex, libbpf.TC_INGRESS) != 0 for ifindex in hooked}
        for kernel_datapath in set(in_kernel.values()):
            self.program(INGRESS_TC_NAME if kernel_datapath else INGRESS_NAME)
        move.copy(self._maps, self.program(MOVE_NAME))
        pins.exchange(self.folder)
        self._pins = self.folder
        pins.end_links(old_folder(self.folder))
        move.follow()
        self._attach_tracepoints()
        for ifindex in ports:
            self._timers.put(self._timers.key(ifindex), self._timers.value(), only_new=True)
        for ifindex, kernel_datapath in in_kernel.items():
            with contextlib.suppress(OSError):  # the interface has gone: the agent detaches it
                self._hook(ifindex, socket.if_indextoname(ifindex), kernel_datapath)
        move.finish()
        move.close()
        remove_pins(old_folder(self.folder))

    def _state_meaning(self) -> None:
        """State in the maps what their fields mean, for the next version."""
        settings = self._maps["settings"]
        held: Any = settings.get(settings.key(0))
        held.meaning = constants.WEIR_MEANING
        settings.put(settings.key(0), held)

    def _forget(self, made: Path | None) -> None:
        """Remove the pins that were just ``made``, unless they hold the state already."""
        if made is not None and made == self._pins:
            remove_pins(made)

    # -- ports -------------------------------------------------------------------------------------

    def attach(
        self, ifindex: int, ifname: str, bridge: int, ofport: int, *, kernel_datapath: bool = False
    ) -> None:
        self.enter_port(ifindex, bridge, ofport)
        try:
            self._hook(ifindex, ifname, kernel_datapath)
        except OSError as error:
            self.detach(ifindex)
            raise DataPlaneError(f"{ifname}: {error}") from error

    def _hook(self, ifindex: int, ifname: str, kernel_datapath: bool) -> None:
        """Attach the programs to an interface, in place of earlier ones. Raises BpfError.

        The bridge may have had the other kind of datapath. Both ingress programs would handle each packet
        twice.
        """
        libbpf.tc_attach(ifindex, libbpf.TC_EGRESS, self.program(EGRESS_NAME))
        if kernel_datapath:
            detach_xdp(ifindex, self.pinned.qdiscs)
            libbpf.tc_attach(ifindex, libbpf.TC_INGRESS, self.program(INGRESS_TC_NAME))
        else:
            detach_ingress_tc(ifindex)
            self._attach_xdp(ifindex, ifname)

    def enter_port(self, ifindex: int, bridge: int, ofport: int) -> None:
        """Enter a port into the maps. Its earlier settings and counters stay. Raises DataPlaneError."""
        key, port = self._slot_for(ifindex)
        if not port.ifindex:
            state: Any = self._maps["port_states"].value()
            root = self.pinned.qdiscs.root(ifindex)
            state.qdisc_drops = root.drops & _U32_MAX if root else 0
            self._maps["port_states"].put(key, state)
            self._maps["ack_counts"].put(key, self._maps["ack_counts"].value())
        port.slot = key[0]
        port.bridge, port.ofport, port.assumed_scale = bridge, ofport, self._assumed_scale
        port.netns = os.stat("/proc/self/ns/net").st_ino & _U32_MAX
        port.ifindex = ifindex
        self._timers.put(self._timers.key(ifindex), self._timers.value(), only_new=True)
        self._maps["ports"].put(key, port)
        self._slots[ifindex] = int(key[0])
        self._begin_rules_epoch()

    def _slot_for(self, ifindex: int) -> tuple[Any, Any]:
        """The slot of a port, or a free one for it. Raises DataPlaneError if there is none."""
        slots = list(self.pinned.slots(ifindex))
        for wanted in (ifindex, 0):
            for key, port in slots:
                if port.ifindex == wanted:
                    return key, port
        others = ", ".join(str(int(port.ifindex)) for _, port in slots)
        raise DataPlaneError(
            f"no slot for interface {ifindex}: the interfaces {others} have taken all that it may use;"
            f" create the interface again to change its number"
        )

    def detach(self, *ifindexes: int) -> dict[int, str]:
        kept: dict[int, str] = {}
        for ifindex in ifindexes:
            try:
                detach_programs(ifindex, self.pinned.qdiscs)
            except BpfError as error:
                kept[ifindex] = str(error)
            else:
                self._forget_port(ifindex)
        if len(kept) < len(ifindexes):
            self._sweep(portless=True)  # once for all of them: it visits every flow
        return kept

    def _forget_port(self, ifindex: int) -> None:
        """Remove a port from the maps, but not its flows."""
        with contextlib.suppress(NoSuchPort):
            key, _ = self.pinned.find_port(ifindex)
            self._maps["ports"].put(key, self._maps["ports"].value())
        self._armed.forget(ifindex)
        self._timers.delete(self._timers.key(ifindex))
        self._slots.pop(ifindex, None)

    def without_programs(self, ifindexes: Collection[int]) -> set[int]:
        try:
            return {ifindex for ifindex in ifindexes if not carries_programs(ifindex, self.pinned.qdiscs)}
        except OSError as error:
            raise DataPlaneError(f"the programs of ports cannot be read: {error}") from error

    def attached(self) -> dict[int, int]:
        return {ifindex: bridge for ifindex, (bridge, _) in self.pinned.ports().items()}

    def configure(
        self,
        ifindex: int,
        settings: PortSettings,
        capacity_bps: int,
        buffer_bytes: int = 0,
        no_share: NoShare = NoShare.NONE,
        observes: bool = False,
    ) -> None:
        key, port = self.pinned.find_port(ifindex)
        port.no_share = no_share
        port.buffer_bytes = min(buffer_bytes, _U32_MAX)
        port.capacity_bps, port.asked_capacity_bps = capacity_bps, settings.capacity_bps
        bdp = min(bdp_bytes(capacity_bps, settings.common_rtt_us), _U32_MAX)  # as much as an allowance can be
        port.bdp_bytes = 0 if no_share else bdp
        without_turns = settings.omits & int(constants.WEIR_OMIT_ACTIVE_SENDERS)
        port.turn_shift = 0 if without_turns else turn_shift(capacity_bps, buffer_bytes, bdp)
        port.short_turn_ns = _SHORT_TURN_RTTS * settings.common_rtt_us * 1000
        port.corrects_allowance, port.observes_share = settings.corrects_allowance, settings.observes_share
        port.observes = observed(observes, settings.observes_share)
        port.by_host = settings.by_host
        corrects = settings.corrects_allowance and buffer_bytes and not no_share
        port.link_ns = drain_ns(_LINK_NS_BYTES, capacity_bps) if corrects else 0
        port.check_interval_ns = max(settings.rtt_us * 1000 // 2, _LEAST_CHECK_NS)
        port.k_pkts = settings.k_pkts if settings.alarm else 0
        port.asked_k_pkts = settings.k_pkts
        for name in _COPIED_SETTINGS:
            setattr(port, name, getattr(settings, name))
        self._maps["ports"].put(key, port)

    def settings(self, ifindex: int) -> tuple[PortSettings, int]:
        _, port = self.pinned.find_port(ifindex)
        copied = {name: int(getattr(port, name)) for name in _COPIED_SETTINGS}
        settings = PortSettings(
            alarm=port.k_pkts > 0,
            k_pkts=int(port.asked_k_pkts),
            corrects_allowance=bool(port.corrects_allowance),
            observes_share=bool(port.observes_share),
            by_host=bool(port.by_host),
            capacity_bps=int(port.asked_capacity_bps),
            **copied,
        )
        return settings, int(port.capacity_bps)

    def configure_host(self, settings: HostSettings) -> None:
        before: Any = self._maps["settings"].get(self._maps["settings"].key(0))
        held = self._maps["settings"].value()
        held.meaning = constants.WEIR_MEANING
        held.unix_offset_ns = self._unix_offset_ns
        held.report_kinds, held.simple_count = settings.report_kinds, settings.simple_count
        held.report_wakes = settings.report_wakes
        self._maps["settings"].put(self._maps["settings"].key(0), held)
        if before.simple_count and not settings.simple_count:
            self._count_members()

    def _count_members(self) -> None:
        """Let N_i be the number of counted flows, after it was the paper's integer. Raises DataPlaneError.

        The programs count flows already. weir_move adds the difference atomically, so that what they count
        meanwhile stays. A flow that was opened while N_i was the integer is not counted.
        """
        members = Counter(flow.ifindex for flow in self.pinned.flows() if flow.counted)
        states, at = self._maps["port_states"], ffi.offsetof("struct weir_port_state", "n_i")
        try:
            for ifindex, slot in self._slots.items():
                state: Any = states.get(states.key(slot))
                edit = at, int(constants.WEIR_SUM_8), int(state.n_i), members[ifindex]
                key = slot.to_bytes(4, sys.byteorder)
                send_edits(self.program(MOVE_NAME), int(constants.WEIR_MOVED_STATE), key, [edit])
        except BpfError as error:
            raise DataPlaneError(f"N_i cannot be counted from the flows: {error}") from error

    def now_ns(self) -> int:
        return time.monotonic_ns() + self._unix_offset_ns

    def counters(self, ifindex: int) -> PortCountersRecord:
        return self.pinned.counters(ifindex)

    def counters_of(self, ifindexes: Collection[int]) -> dict[int, PortCountersRecord]:
        slots = {ifindex: self._slots[ifindex] for ifindex in ifindexes if ifindex in self._slots}
        records = self.pinned.records.many(tuple(slots.values()))
        return {ifindex: records[slot] for ifindex, slot in slots.items()}

    def untracked(self) -> dict[int, int]:
        if not self._last_sweep.visited:
            return {}  # the flow table is empty, or nearly so
        by_slot = untracked(self._states())
        return {ifindex: by_slot[slot] for ifindex, slot in self._slots.items() if slot in by_slot}

    # -- rules -------------------------------------------------------------------------------------

    def put(self, bridge: int, rule: Rule) -> None:
        self.pinned.rule_maps.put(bridge, rule)
        self._begin_rules_epoch()

    def _begin_rules_epoch(self) -> None:
        """Let the programs look for exact rules of flows again that had none."""
        epochs = self._maps["rules_epoch"]
        held = epochs.get(epochs.key(0))
        epoch = int(held[0]) if held is not None else 0
        epochs.put(epochs.key(0), epochs.value(epoch % _U32_MAX + 1))

    def remove(self, bridge: int, rule: Rule) -> RuleStats:
        return self.pinned.rule_maps.remove(bridge, rule)

    def rules(self, bridge: int) -> list[tuple[Rule, RuleStats]]:
        return self.pinned.rules(bridge)

    def expired(self) -> Iterable[tuple[int, Rule, RuleStats, bool]]:
        return self.pinned.rule_maps.expired()

    def arm(self, ifindex: int, bridge: int, rules: Sequence[Rule]) -> None:
        key, port = self.pinned.find_port(ifindex)
        self._armed.replace(bridge, ifindex, rules)
        port.armed_entries = len(rules)
        self._maps["ports"].put(key, port)
        self._begin_rules_epoch()

    def armed(self, ifindex: int) -> list[tuple[Rule, RuleStats]]:
        return self._armed.of(ifindex)

    def reflex_level(self, ifindex: int) -> int:
        key, _ = self.pinned.find_port(ifindex)
        state: Any = self._maps["port_states"].get(key)
        return int(state.reflex_level)

    # -- flows and reports -------------------------------------------------------------------------

    def sweep_is_due(self, times: SweepTimes) -> bool:
        if not self._last_sweep.visited:
            return self._maps["flow_keys"].peek() or self._maps["opening_keys"].peek()
        return self._last_sweep.is_due(times, self._states(), time.monotonic_ns())

    def _states(self) -> dict[int, bytes]:
        """The state of each port. A sweep reads it in another thread than the one that attaches ports."""
        return self.pinned.records.states(tuple(self._slots.values()))

    def sweep(self, times: SweepTimes) -> int:
        with self._sweeping:
            if self._closed:
                return 0
            states = self._states()
            sweep = self._sweep(
                closed_ns=int(times.closed_s * 1e9),
                silent_ns=int(times.silent_s * 1e9),
                translated_ns=int(times.translated_s * 1e9),
                opening_ns=int(times.opening_s * 1e9),
                idle_ns=int(times.idle_s * 1e9),
                active_ns=int(times.active_s * 1e9),
                report_all=times.roll_call,
            )
        self._last_sweep = LastSweep(times, states, int(sweep.now_ns), int(sweep.due_ns), int(sweep.visited))
        return int(sweep.removed)

    def _sweep(self, **fields: int) -> Any:
        """Run the sweep program until it has visited every flow, or close() waits. Returns its result."""
        with self._sweeping:
            begin = {"now_ns": time.monotonic_ns(), "due_ns": _NEVER_NS}
            sweep = ffi.new("struct weir_sweep *", begin | fields)
            while not sweep.done and not self._closed:
                _, answer = libbpf.run(self.program("weir_sweep"), packet=bytes(ffi.buffer(sweep)))
                ffi.memmove(sweep, answer, ffi.sizeof("struct weir_sweep"))
            return sweep

    def events_fd(self) -> int:
        return self._event_ring.fd

    def events(self) -> list[QueueEvent]:
        self._event_ring.consume()
        events, self._events = self._events, []
        return events

    def _take_event(self, record: bytes) -> None:
        event = ffi.from_buffer("struct weir_event *", record)
        self._events.append(
            QueueEvent(
                ifindex=int(event.ifindex),
                kind=QueueEventKind(event.kind),
                queue_pkts=int(event.queue_pkts),
                queue_bytes=int(event.queue_bytes),
                n_i=int(event.n_i),
                crossing_ns=int(event.crossing_ns) + self._unix_offset_ns,
                rank=int(event.rank) if event.kind == QueueEventKind.REFLEX_ON else 0,
                non_tcp_percent=int(event.non_tcp_percent),
                allowance_bytes=int(event.allowance_bytes),
            )
        )

    def reports_fd(self) -> int:
        return self._report_ring.fd

    def reports(self) -> tuple[dict[int, bytes], int]:
        self._report_ring.consume()
        reports, self._reports = self._reports, {}
        lost = self._lost()
        newly_lost, self._lost_before = lost - self._lost_before, lost
        return {bridge: bytes(records) for bridge, records in reports.items()}, newly_lost

    def _take_report(self, record: bytes) -> None:
        bridge = int.from_bytes(record[:4], sys.byteorder)
        self._reports.setdefault(bridge, bytearray()).extend(record[_REPORT_HEADER_BYTES:])

    def _lost(self) -> int:
        held = self._maps["reports_lost"]
        counter = held.get(held.key(0))
        return int(counter[0]) if counter is not None else 0

    # -- programs ----------------------------------------------------------------------------------

    def program(self, name: str) -> int:
        """The descriptor of a program. Raises BpfError if it is loaded now and the kernel refuses it."""
        if name not in _LOADED_WHEN_USED:
            return self._object.program(name)
        if name not in self._when_used:
            self._when_used[name] = self._load(lambda other: other != name)
        return self._when_used[name].program(name)

    def close(self) -> None:
        self._closed = True  # a sweep in another thread ends early, and no other one begins
        with self._sweeping:
            self._event_ring.close()
            self._report_ring.close()
            for loaded in self._when_used.values():
                loaded.close()
            self._object.close()
            self.pinned.close()

    def destroy(self) -> None:
        self.close()
        remove_data_plane(self.folder.name)

    def _open(self, unwanted: Callable[[str], bool]) -> libbpf.Object:
        """Open the programs whose name is not ``unwanted``, and the maps at their sizes. Raises BpfError."""
        opened = libbpf.Object(artifact("weir.bpf.o"))
        try:
            opened.leave_out(unwanted)
            opened.pin_maps(self._pins)
            opening = max(_LEAST_OPENING, self._max_flows // _OPENING_FRACTION)
            opened.resize("opening_keys", opening)
            opened.resize("other_flows", self._max_flows + opening)
            for name in ("flow_keys", "exact_rules"):
                opened.resize(name, self._max_flows)
            opened.resize("flow_buckets", -(-self._max_flows // int(constants.WEIR_FLOWS_PER_BUCKET)))
        except BpfError:
            opened.close()
            raise
        return opened

    def _load(self, unwanted: Callable[[str], bool]) -> libbpf.Object:
        """Load the programs whose name is not ``unwanted``, with the pinned maps. Raises BpfError."""
        loading = self._open(unwanted)
        try:
            loading.load()
        except BpfError:
            loading.close()
            raise
        return loading

    def _attach_tracepoints(self) -> None:
        """Attach to the qdiscs' tracepoints, in place of an earlier agent's programs."""
        for name in _TRACEPOINTS:
            pin = self._pins / f"{name}_link"
            if pin.exists():
                earlier = libbpf.Link.pinned(pin)
                earlier.unpin()
                earlier.destroy()
            link = self._object.attach(name)
            link.pin(pin)
            link.destroy()

    def _attach_xdp(self, ifindex: int, ifname: str) -> None:
        """Attach native XDP on hardware and generic XDP elsewhere. Never replace a foreign program.

        On a veth, native XDP copies each packet and sends it through another queue. Generic XDP does not.
        If the interface refuses one mode, or an earlier agent has used the other one, try the other mode.
        """
        program = self.program(INGRESS_NAME)
        attached = next(iter(self.pinned.qdiscs.xdp(ifindex).values()), 0)
        if attached and not is_named(attached, INGRESS_NAME):
            raise BpfError(
                errno.EBUSY, f"it has another XDP program (id {attached}): detach that program first"
            )
        modes = [libbpf.XDP_GENERIC, libbpf.XDP_NATIVE]
        if Path("/sys/class/net", ifname, "device").exists():
            modes.reverse()
        try:
            libbpf.xdp_attach(ifindex, program, modes[0], replace=bool(attached))
        except BpfError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.EEXIST):
                raise
            libbpf.xdp_attach(ifindex, program, modes[1], replace=bool(attached))


def _unix_offset_ns() -> int:
    """CLOCK_REALTIME - CLOCK_MONOTONIC, now. A delay between the two readings can only make it smaller."""
    return max(time.time_ns() - time.monotonic_ns() for _ in range(3))
