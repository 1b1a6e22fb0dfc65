"""Signals that end a wait, at whatever moment and in whatever thread they come."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from weir_base.signals import awaited

ROUNDS = 5000
SENDER = """
import os, random, signal, sys, time
while os.read(0, 1):
    end_s = time.perf_counter() + random.random() * 60e-6
    while time.perf_counter() < end_s:
        pass
    os.kill(os.getppid(), signal.SIGUSR1)
"""


def test_a_signal_at_any_moment_ends_the_wait() -> None:
    """With an Event that a handler sets, one of 70,000 rounds never ended."""
    with subprocess.Popen((sys.executable, "-c", SENDER), stdin=subprocess.PIPE) as sender:
        assert sender.stdin is not None
        for _ in range(ROUNDS):
            with awaited(signal.SIGUSR1) as ended:
                os.write(sender.stdin.fileno(), b"x")
                assert ended.wait(60)


@contextmanager
def another_thread() -> Iterator[int]:
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    assert thread.ident is not None
    try:
        yield thread.ident
    finally:
        end.set()
        thread.join()


def test_a_signal_to_another_thread_ends_the_wait() -> None:
    with awaited(signal.SIGUSR1) as ended, another_thread() as thread:
        signal.pthread_kill(thread, signal.SIGUSR1)
        assert ended.wait(60)
        assert ended.wait(), "it has come"


def test_other_signals_and_the_time_end_no_wait() -> None:
    with awaited(signal.SIGUSR2), awaited(signal.SIGUSR1) as ended:
        signal.raise_signal(signal.SIGUSR2)
        began_s = time.monotonic()
        assert not ended.wait(0.05)
        assert time.monotonic() - began_s >= 0.05
        assert not ended.wait(0)


def test_the_earlier_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with awaited(signal.SIGINT):
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
