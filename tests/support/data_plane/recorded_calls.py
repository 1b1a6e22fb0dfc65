"""A record of each call of a congestion control in BPF, with what the kernel had set before and after it.

A control is compiled with recorded_calls.h, which records the calls for connections to the receiver of
scripted_wire.py. It is registered under another name beside the real one. Its code is unchanged.
"""

from __future__ import annotations

import mmap
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from cffi import FFI

from libbpf_cffi.libbpf import Object, unregister
from tests.support.data_plane.host_c import INCLUDES
from transports.congestion import BPFFS, TRANSPORTS, loaded
from weir_base.paths import PROJECT, build_dir

HEADER = Path(__file__).with_name("recorded_calls.h")
BEFORE, AFTER, LEFT_OUT = range(3)


def _declared(name: str) -> str:
    """A #define or a struct of the header."""
    found = re.search(rf"^(#define {name} [^\n]*|struct {name} {{.*?^}};)$", HEADER.read_text(), re.M | re.S)
    assert found, f"{HEADER} does not declare {name}"
    return re.sub(r"\s*//.*", "", found[0])


RECORDS = 1 << int(_declared("RECORDS").rstrip(")").rpartition("<<")[2])

_ffi = FFI()
_ffi.cdef("typedef uint32_t __u32; typedef uint64_t __u64;")
_ffi.cdef(_declared("NAME_BYTES") + "\n" + _declared("call"))
_ffi.cdef("struct head { uint32_t count, skip_period, seen, padding; };")
_HEAD_BYTES = _ffi.sizeof("struct head")
_CALL_BYTES = _ffi.sizeof("struct call")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A connection before or after a call. Names are the kernel's, with units; windows are in segments.

    ``sent_bytes`` is without retransmissions. ``argument``: the second one of the call. ``moment``: BEFORE,
    AFTER, or LEFT_OUT instead of BEFORE.
    """

    now_ns: int
    sent_bytes: int
    acked_bytes: int
    moment: int
    argument: int
    state: int
    cwnd: int
    cwnd_cnt: int
    ssthresh: int
    prior_cwnd: int
    high_seq: int
    una: int
    snd_nxt: int
    delivered: int
    is_cwnd_limited: int
    max_packets_out: int
    in_flight: int
    data_segs_out: int
    srtt_us: int
    least_rtt_us: int
    mss: int
    idle_jiffies: int
    rto: int
    slow_ns: int
    name: str


class Recorder:
    """The record of the calls since ``clear``. ``name``: of the recorded control, for TCP_CONGESTION."""

    def __init__(self, name: str, memory: mmap.mmap) -> None:
        self.name = name
        self._memory = memory

    def clear(self, skip_period: int = 0) -> None:
        """Begin again. Of the calls without a result one in ``skip_period`` is left out; 0: none."""
        self._memory[:_HEAD_BYTES] = _ffi.buffer(_ffi.new("struct head *", (0, skip_period, 0, 0)))[:]

    def calls(self) -> list[tuple[Snapshot, Snapshot]]:
        """Each call in order: the connection before and after it."""
        count = int.from_bytes(self._memory[:4], "little")
        assert count < RECORDS, "more calls than there is room for"
        held = self._memory[_HEAD_BYTES : _HEAD_BYTES + count * _CALL_BYTES]
        found = [_snapshot(one) for one in _ffi.from_buffer("struct call[]", held)]
        pairs = list(zip(found[::2], found[1::2], strict=True))
        assert all(a.name == b.name and a.moment != AFTER == b.moment for a, b in pairs), "calls are mixed"
        return pairs


def _snapshot(raw: object) -> Snapshot:
    names = Snapshot.__slots__[:-1]
    return Snapshot(*(int(getattr(raw, name)) for name in names), name=_ffi.string(raw.name).decode())


@contextmanager
def recorder(control: str, folder: Path) -> Iterator[Recorder]:
    """The control with a record of its calls, which sockets can use in this context. It shares maps."""
    name = control.replace("weir_", "wrec_")
    with ExitStack() as undo:
        undo.enter_context(loaded(control))
        programs = undo.enter_context(Object(_compiled(control, name, folder)))
        for shared in TRANSPORTS[control].shared_maps:
            programs.use_pinned(shared, BPFFS / shared)
        programs.load()
        programs.register(control, BPFFS / name)
        undo.callback(unregister, BPFFS / name)
        held = programs.map("recorded_calls", FFI(), "uint32_t", "uint32_t")
        size = -(-(_HEAD_BYTES + RECORDS * _CALL_BYTES) // mmap.PAGESIZE) * mmap.PAGESIZE
        yield Recorder(name, undo.enter_context(mmap.mmap(held.fd, size)))


def _compiled(control: str, name: str, folder: Path) -> Path:
    source, out = folder / f"{name}.bpf.c", folder / f"{name}.bpf.o"
    text = (PROJECT / "transports" / f"{control}.bpf.c").read_text().replace(f'"{control}"', f'"{name}"')
    source.write_text(f'#include "{HEADER}"\n{text}')
    options = ("-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", "-Werror", "-Wno-int-conversion")
    includes = (f"-I{include}" for include in (build_dir(), *reversed(INCLUDES)))
    subprocess.run(("clang", *options, *includes, "-c", source, "-o", out), check=True)
    return out
