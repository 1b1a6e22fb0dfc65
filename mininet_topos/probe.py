"""The queue probe: one port's queue over time, packet by packet (queue_probe.bpf.c), read once at the end."""

from __future__ import annotations

import csv
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
from numpy.typing import NDArray

from mininet_topos.errors import LabError
from mininet_topos.process import built
from mininet_topos.signals import undisturbed
from openflow_ext.switch.libbpf import BpfError, Object

BUCKET_NS = 1_000_000
BUCKETS = 1 << 18
_COUNTS = ("pkts_max", "bytes_max", "pkts_last", "bytes_last", "pkts_min", "drops_total")
BUCKET_TYPE = np.dtype([("sent_total", "<u8"), *((name, "<u4") for name in _COUNTS)])
SETTINGS = "struct probe_settings"

_ffi = FFI()
_ffi.cdef(
    "struct probe_settings { uint64_t start_ns; uint64_t bucket_ns; uint32_t ifindex; uint32_t netns_inum; };"
)


class QueueProbe:
    """The probe, loaded once and aimed at one port at a time."""

    def __init__(self) -> None:
        with undisturbed():  # an exception in libbpf's callbacks would be lost
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
        """Watch a port for as long as the context lasts; the trace is filled at its end."""
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


def _growth(totals: NDArray, touched: NDArray, latest: NDArray) -> NDArray:
    """What a counter grew by in each bucket; what came before the first touched one does not count."""
    filled = np.where(latest >= 0, totals[latest], totals[touched][:1].sum()).astype(np.int64)
    return np.diff(filled, prepend=filled[:1])


class QueueTrace:
    """A port's queue over time, in buckets of 1 ms.

    ``pkts`` and ``bytes`` are the highest length in each bucket (where nothing came or went: the length
    as it was left), ``pkts_min`` the lowest, ``sent_bytes`` what was dequeued, ``drops`` the packets that
    were refused (told by the next that was not).
    """

    def __init__(self, start_ns: int) -> None:
        self.start_ns = start_ns
        self.fill(np.zeros(0, dtype=BUCKET_TYPE))

    def fill(self, buckets: NDArray) -> None:
        """Take over raw buckets."""
        touched = buckets["pkts_min"] > 0
        latest = np.maximum.accumulate(np.where(touched, np.arange(len(buckets)), -1))
        known = latest >= 0  # before the first packet the queue counts as empty
        left_pkts = np.where(known, buckets["pkts_last"][latest], 0)
        self.pkts = np.where(touched, buckets["pkts_max"], left_pkts)
        self.bytes = np.where(
            touched, buckets["bytes_max"], np.where(known, buckets["bytes_last"][latest], 0)
        )
        self.pkts_min = np.where(touched, np.maximum(buckets["pkts_min"], 1) - 1, left_pkts)
        self.sent_bytes, self.drops = (
            _growth(buckets[name], touched, latest) for name in ("sent_total", "drops_total")
        )

    def write(self, path: Path) -> None:
        """Write the trace as CSV."""
        with open(path, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["time_ms", "pkts_max", "bytes_max", "pkts_min", "sent_bytes", "drops"])
            columns = (self.pkts, self.bytes, self.pkts_min, self.sent_bytes, self.drops)
            writer.writerows(zip(range(len(self.pkts)), *columns, strict=True))

    def busy_rate_bps(self, least_ms: int = 20) -> float | None:
        """The rate at which the port sent while its queue was never empty for at least `least_ms`.

        None where there was no such time. This is what the bottleneck's real rate was.
        """
        busy = np.concatenate(([0], (self.pkts_min > 0).astype(np.int8), [0]))
        starts, ends = (np.flatnonzero(np.diff(busy) == sign) for sign in (1, -1))
        stretches = [(a, b) for a, b in zip(starts, ends, strict=True) if b - a >= least_ms]
        sent = sum(int(self.sent_bytes[a:b].sum()) for a, b in stretches)
        span_ms = sum(int(b - a) for a, b in stretches)
        return 8 * sent / (span_ms / 1000) if span_ms else None
