"""ICTCP step by step: the BPF program ictcp_steps.bpf.c beside the model in Python."""

from __future__ import annotations

import struct
from dataclasses import asdict, dataclass
from typing import Any

from cffi import FFI

from libbpf_cffi import libbpf
from libbpf_cffi.libbpf import Object
from transports.ictcp_model import Connection, Departure, Receiver

FLOWS = 8
ETHERNET = bytes(14)
_STEP = struct.Struct("<QQ8I")
_ffi = FFI()
_ffi.cdef("""
struct port {
    uint64_t capacity_bps, subslot_began_ns, subslot_ns, arrived_bytes, free_bps, quota_bps, rtt_us_bytes;
    uint64_t received_bytes, windows_bytes, mean_window_bytes;
    uint32_t connections, slot, is_second, increases, decreases, restarts;
};
struct flow {
    uint64_t began_ns, measured_from_ns, measured_from_bytes, received_bytes, active_ns, rtt_ns;
    uint64_t measured_bps, probe_ns;
    uint32_t probe_value, last_value, window_bytes, mss, slow_start, low_intervals, slot;
};
""")


@dataclass(frozen=True, slots=True)
class Figures:
    """What both know of the interface after a step."""

    slot: int
    subslot_ns: int
    free_bps: int
    quota_bps: int
    mean_window_bytes: int
    increases: int
    decreases: int
    restarts: int


class IctcpSteps:
    """The program and the model, which take the same steps."""

    def __init__(self, program: Object, capacity_bps: int) -> None:
        self._step = program.program("ictcp_step")
        self._port = program.map("port", _ffi, "uint32_t", "struct port")
        flows = program.map("flows", _ffi, "uint32_t", "struct flow")
        self._port.put(self._port.key(0), self._port.value({"capacity_bps": capacity_bps}))
        for number in range(FLOWS):
            flows.put(flows.key(number), flows.value())
        self.model = Receiver(capacity_bps)
        self.connections = [Connection() for _ in range(FLOWS)]

    def arrive(self, now_ns: int, frame_bytes: int) -> None:
        """A frame arrives in both."""
        self.model.arrive(now_ns, frame_bytes)
        self._run(now_ns, 0, frame_bytes, *[0] * 7)

    def depart(self, flow: int, seen: Departure) -> tuple[int, int]:
        """A segment of a connection leaves in both. Returns its window in the program and in the model."""
        value, echo = seen.timestamps or (0, 0)
        numbers = (seen.payload, seen.mss, seen.srtt_us, int(seen.timestamps is not None), value, echo)
        window = self._run(seen.now_ns, seen.received_bytes, 0, flow, *numbers)
        return window, self.model.depart(self.connections[flow], seen)

    def figures(self) -> tuple[Figures, Figures]:
        """Return the figures of the program and of the model."""
        raw: Any = self._port.get(self._port.key(0))
        names = Figures.__slots__
        model = asdict(self.model)
        return Figures(*(getattr(raw, name) for name in names)), Figures(*(model[name] for name in names))

    def _run(self, *fields: int) -> int:
        return libbpf.run(self._step, packet=ETHERNET + _STEP.pack(*fields))[0]
