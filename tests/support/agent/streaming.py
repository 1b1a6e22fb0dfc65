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

STREAM_PORT = 5001
RECEIVER = "10.77.0.2"
_PROGRAM = (sys.executable, "-I", str(PROJECT / "tests/support/lab/stream.py"))


def inside(bench: Bench, number: int, *argv: str) -> list[str]:
    """A command line that runs in a host."""
    return ["ip", "netns", "exec", bench.host(number), *argv]


@contextlib.contextmanager
def streaming(bench: Bench) -> Iterator[Callable[[], tuple[int, int]]]:
    """A stream from host 1 to host 2. Gives a function that ends it and returns bytes sent and received."""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(inside(bench, 2, *_PROGRAM, "sink", str(STREAM_PORT)), **pipes) as sink:
        sink.stdout.readline()
        call = (*_PROGRAM, "source", RECEIVER, str(STREAM_PORT))
        with subprocess.Popen(inside(bench, 1, *call), **pipes) as source:
            try:
                await_clamps(bench)
                yield lambda: (
                    int(source.communicate(timeout=DEADLINE_S)[0]),
                    int(sink.communicate(timeout=DEADLINE_S)[0]),
                )
            finally:
                source.kill()
                sink.kill()


def await_clamps(bench: Bench) -> None:
    """Wait until a hundred more ACKs of host 2 have been lowered, or observed."""
    begun = bench.port_counters(2).clamped
    wait_until(lambda: bench.port_counters(2).clamped > begun + 100, "the stream is clamped")


def senders_window(bench: Bench) -> int:
    """The newest window that the sender of the stream has received, in bytes."""
    text = run(*inside(bench, 1, "ss", "-tinH", "dst", f"{RECEIVER}:{STREAM_PORT}"))
    (window,) = re.findall(r"snd_wnd:(\d+)", text)
    return int(window)


def await_window(bench: Bench, holds: Callable[[int], bool], what: str) -> None:
    """Wait for a window at the sender."""
    wait_until(lambda: holds(senders_window(bench)), what)
