"""The run time of BPF programs as the kernel measures it: BPF_ENABLE_STATS, run_time_ns and run_cnt."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

from cffi import FFI

from libbpf_cffi.declarations import check

_RUN_TIME_STATS = 0
_PROGRAM_TYPES = {"tc": 3, "xdp": 6}
_MOVE_TO_R0, _EXIT = 0xB7, 0x95

ffi = FFI()
ffi.cdef("""
struct program_info { char before[192]; uint64_t run_time_ns; uint64_t run_cnt; char after[32]; };
struct instruction { uint8_t code; uint8_t registers; int16_t offset; int32_t immediate; };
int bpf_obj_get_info_by_fd(int fd, void *info, uint32_t *len);
int bpf_enable_stats(int type);
int bpf_prog_load(int type, const char *name, const char *license, const struct instruction *instructions,
                  size_t count, const void *options);
""")
_lib = ffi.dlopen("libbpf.so.1")


@dataclass(frozen=True, slots=True)
class RunTime:
    """The total run time of a program and its number of runs."""

    ns: int
    count: int

    def __sub__(self, earlier: RunTime) -> RunTime:
        return RunTime(self.ns - earlier.ns, self.count - earlier.count)

    @property
    def ns_each(self) -> float:
        return self.ns / self.count if self.count else float("nan")


@contextlib.contextmanager
def counted() -> Iterator[None]:
    """The kernel measures run times during this context."""
    fd = check(_lib.bpf_enable_stats(_RUN_TIME_STATS), "switch BPF statistics on")
    try:
        yield
    finally:
        os.close(fd)


def run_time(program_fd: int) -> RunTime:
    info = ffi.new("struct program_info *")
    size = ffi.new("uint32_t *", ffi.sizeof("struct program_info"))
    check(_lib.bpf_obj_get_info_by_fd(program_fd, info, size), "look at a program")
    return RunTime(int(info.run_time_ns), int(info.run_cnt))


def empty_program(kind: str) -> int:
    """A program that passes every packet: its run time is the cost of measuring run times."""
    verdict = 2 if kind == "xdp" else -1
    code = ffi.new("struct instruction[]", [(_MOVE_TO_R0, 0, 0, verdict), (_EXIT, 0, 0, 0)])
    fd = _lib.bpf_prog_load(_PROGRAM_TYPES[kind], b"empty", b"GPL", code, 2, ffi.NULL)
    return check(fd, "load the empty program")
