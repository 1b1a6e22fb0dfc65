"""Runs a program on frames from standard input, each one at the same moment as another process.

python -m tests.support.data_plane.lockstep PROGRAM_FD MEMORY_FD ME (0 or 1); the frame size comes first.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys

from libbpf_cffi import libbpf


def main(program: int, memory: int, me: int) -> None:
    size = int.from_bytes(sys.stdin.buffer.read(4))
    frames = iter(lambda: sys.stdin.buffer.read(size), b"")
    at = (ctypes.c_uint64 * 2).from_buffer(mmap.mmap(memory, mmap.PAGESIZE))
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[-me]})
    for number, frame in enumerate(list(frames), 1):
        at[me] = number
        while at[1 - me] < number:
            pass
        libbpf.run(program, frame)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
