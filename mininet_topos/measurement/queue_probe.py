"""The queue probe: the length of one port's queue over time, packet by packet (native/queue_probe.bpf.c).

Of other ports it measures the mean and the greatest length.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from cffi import FFI

from libbpf_cffi.libbpf import BpfError, Object
from mininet_topos.errors import LabError
from mininet_topos.machine.commands import built
from mininet_topos.machine.signals import undisturbed
from mininet_topos.measurement.queue_trace import BUCKET_TYPE, QueueTrace

BUCKET_NS = 1_000_000
BUCKETS = 1 << 20
"""A run that takes longer than so many buckets, 17 minutes, is recorded in part."""
SETTINGS = "struct probe_settings"

_ffi = FFI()
_ffi.cdef("""
struct probe_settings {
    uint64_t start_ns; uint64_t bucket_ns; uint32_t ifindex; uint32_t netns_inum; uint32_t others;
};
struct port_queue { uint64_t last_ns; uint64_t byte_ns; uint32_t last_bytes; uint32_t bytes_max; };
""")


@dataclass(slots=True)
class PortQueue:
    """A port's queue while it was watched: the sum of length x time, and the greatest length."""

    byte_ns: int = 0
    bytes_max: int = 0


class QueueProbe:
    """The probe: loaded once, it records one port at a time. Raises LabError if it cannot be loaded."""

    def __init__(self) -> None:
        self._others = 0
        with undisturbed():  # an exception inside libbpf's callbacks would be lost
            self._load()

    def _load(self) -> None:
        try:
            self._object = Object(built("queue_probe.bpf.o"))
            self._object.load()
            self._config = self._object.map("probe_config", _ffi, "uint32_t", SETTINGS)
            buckets = self._object.map("queue_buckets", _ffi, "uint32_t", "uint64_t")
            self._queues = self._object.map("port_queues", _ffi, "uint32_t", "struct port_queue")
            self._memory = mmap.mmap(buckets.fd, BUCKETS * BUCKET_TYPE.itemsize)
            self._links = [self._object.attach(program) for program in ("on_enqueue", "on_dequeue")]
        except BpfError as error:
            raise LabError(f"the queue probe cannot be loaded: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for link in self._links:
            link.destroy()
        self._memory.close()
        self._object.close()

    @contextmanager
    def watching_others(self, queues: Mapping[str, PortQueue]) -> Iterator[None]:
        """Measure the queues of ports by name, beside `watching`; `queues` is filled at the end."""
        keys = {ifname: self._queues.key(_ifindex(ifname)) for ifname in queues}
        for key in keys.values():
            self._queues.put(key, self._queues.value())
        self._others = len(keys)
        try:
            yield
        finally:
            self._others = 0
            for ifname, key in keys.items():
                raw: Any = self._queues.get(key)
                queues[ifname].byte_ns, queues[ifname].bytes_max = raw.byte_ns, raw.bytes_max
                self._queues.delete(key)

    @contextmanager
    def watching(self, ifname: str) -> Iterator[QueueTrace]:
        """Record a port's queue while the context lasts; the trace is filled at the end."""
        self._memory[:] = bytes(len(self._memory))
        trace = QueueTrace(time.monotonic_ns())
        settings = {
            "start_ns": trace.start_ns,
            "bucket_ns": BUCKET_NS,
            "ifindex": _ifindex(ifname),
            "netns_inum": os.stat("/proc/self/ns/net").st_ino,
            "others": self._others,
        }
        self._config.put(self._config.key(0), self._config.value(settings))
        try:
            yield trace
        finally:
            self._config.put(self._config.key(0), self._config.value({"start_ns": 0}))
            used = (time.monotonic_ns() - trace.start_ns) // BUCKET_NS + 1
            trace.fill(np.frombuffer(self._memory, dtype=BUCKET_TYPE)[: min(used, BUCKETS)].copy())
            trace.is_cut = used > BUCKETS


def _ifindex(ifname: str) -> int:
    return int(Path(f"/sys/class/net/{ifname}/ifindex").read_text())
