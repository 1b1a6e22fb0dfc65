"""The number of flows that a data plane tracks if its settings do not say it."""

from __future__ import annotations

import os
from pathlib import Path

from libbpf_cffi import libbpf
from libbpf_cffi.libbpf import BpfError
from openflow_ext.switch.dataplane.structs import constants, ffi

LEAST_FLOWS = 65_536
MOST_FLOWS = 1_000_000
_MEMORY_PART = 100
"""The flow table takes one part in this many of the machine's memory."""
_KEY_BYTES = int(ffi.sizeof("struct weir_flow_key"))
FLOW_BYTES = int(ffi.sizeof("struct weir_bucket")) // int(constants.WEIR_FLOWS_PER_BUCKET) + _KEY_BYTES
"""The memory that is reserved for each flow: its part of the buckets, and its key in the sweep's queue."""


def default_max_flows(memory_bytes: int | None = None) -> int:
    """The flows that fit in about 1 % of the memory (default: this machine's); LEAST_FLOWS to MOST_FLOWS."""
    held = memory_bytes or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(max(held // _MEMORY_PART // FLOW_BYTES, LEAST_FLOWS), MOST_FLOWS)


def held_max_flows(folder: Path) -> int:
    """The number of flows for which a data plane at ``folder`` was made; 0: there is none."""
    try:
        keys = libbpf.Map.pinned(folder / "flow_keys", ffi, "__u32", "struct weir_flow_key")
    except BpfError:
        return 0
    try:
        return keys.size()
    finally:
        os.close(keys.fd)
