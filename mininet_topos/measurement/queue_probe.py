"""The queue probe: the length of one port's queue over time, packet by packet (native/queue_probe.bpf.c)."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from cffi import FFI

from libbpf_cffi.libbpf import BpfError, Object
from mininet_topos.errors import LabError
from mininet_topos.machine.commands import built
from mininet_topos.machine.signals import undisturbed
from mininet_topos.measurement.queue_trace import BUCKET_TYPE, QueueTrace

BUCKET_NS = 1_000_000
BUCKETS = 1 << 18
SETTINGS = "struct probe_settings"

_ffi = FFI()
_ffi.cdef(
    "struct probe_settings { uint64_t start_ns; uint64_t bucket_ns; uint32_t ifindex; uint32_t netns_inum; };"
)


class QueueProbe:
    """The probe: loaded once, it records one port at a time. Raises LabError if it cannot be loaded."""

    def __init__(self) -> None:
        with undisturbed():  # an exception inside libbpf's callbacks would be lost
            self._load()

    def _load(self) -> None:
        try:
            self._object = Object(built("queue_probe.bpf.o"))
            self._object.load()
            self._config = self._object.map("probe_config", _ffi, "uint32_t", SETTINGS)
            buckets = self._object.map("queue_buckets", _ffi, "uint32_t", "uint64_t")
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
    def watching(self, ifname: str) -> Iterator[QueueTrace]:
        """Record a port's queue while the context lasts; the trace is filled at the end."""
        self._memory[:] = bytes(len(self._memory))
        trace = QueueTrace(time.monotonic_ns())
        settings = {
            "start_ns": trace.start_ns,
            "bucket_ns": BUCKET_NS,
            "ifindex": int(Path(f"/sys/class/net/{ifname}/ifindex").read_text()),
            "netns_inum": os.stat("/proc/self/ns/net").st_ino,
        }
        self._config.put(self._config.key(0), self._config.value(settings))
        try:
            yield trace
        finally:
            self._config.put(self._config.key(0), self._config.value({"start_ns": 0}))
            used = min((time.monotonic_ns() - trace.start_ns) // BUCKET_NS + 1, BUCKETS)
            trace.fill(np.frombuffer(self._memory, dtype=BUCKET_TYPE)[:used].copy())
