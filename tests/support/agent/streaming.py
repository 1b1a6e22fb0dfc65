"""One checked TCP stream between the hosts of a bench, and what its sender knows of it."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

from tests.support.agent.switch_bench import Bench, run
from tests.support.waiting import DEADLINE_S, wait_until
from weir_base.paths import PROJECT
from weir_base.port_counters import PortCountersRecord

STREAM_PORT = 5001
RECEIVER = "10.77.0.2"
_PROGRAM = (sys.executable, "-I", str(PROJECT / "tests/support/lab/stream.py"))


@contextlib.contextmanager
def streaming(bench: Bench) -> Iterator[Callable[[], tuple[int, int]]]:
    """A stream from host 1 to host 2. Gives a function that ends it and returns bytes sent and received."""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(bench.inside(2, *_PROGRAM, "sink", str(STREAM_PORT)), **pipes) as sink:
        sink.stdout.readline()
        call = (*_PROGRAM, "source", RECEIVER, str(STREAM_PORT))
        with subprocess.Popen(bench.inside(1, *call), **pipes) as source:
            try:
                yield lambda: (
                    int(source.communicate(timeout=DEADLINE_S)[0]),
                    int(sink.communicate(timeout=DEADLINE_S)[0]),
                )
            finally:
                source.kill()
                sink.kill()


@contextlib.contextmanager
def clamped_streaming(bench: Bench) -> Iterator[Callable[[], tuple[int, int]]]:
    """A stream like that of `streaming`, of which ACKs have been lowered, or observed."""
    with streaming(bench) as finish:
        await_clamps(bench)
        yield finish


def await_clamps(bench: Bench, what: str = "the stream is clamped") -> PortCountersRecord:
    """Host 2's port counters once a hundred more of its ACKs have been lowered, or observed."""
    begun = bench.port_counters(2).clamped
    return wait_until(lambda: bench.port_counters(2), what, lambda found: found.clamped > begun + 100)


def senders_window(bench: Bench) -> int:
    """The newest window that the sender of the stream has received, in bytes."""
    text = run(*bench.inside(1, "ss", "-tinH", "dst", f"{RECEIVER}:{STREAM_PORT}"))
    (window,) = re.findall(r"snd_wnd:(\d+)", text)
    return int(window)


def await_window(bench: Bench, holds: Callable[[int], bool], what: str) -> None:
    """Wait for a window at the sender."""
    wait_until(lambda: holds(senders_window(bench)), what)
