"""A run's store in a process of its own: no alarm waits for what it takes to write rows.

Two threads of a process take turns at Python's lock, and one that turns rows into SQL wants it most of the
time. So a controller only packs its changes, and every ``EXCHANGE_S`` passes them on to a process that has
the store (``writer.py``); the answer brings what there is to know.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from flowdb._native import native_threading
from flowdb.changes import Change
from flowdb.commands import Command
from flowdb.run_store import RunSpec
from flowdb.store import Notice, StoreCounters, log_notices

EXCHANGE_S = 0.05
_RESTART_S = 1.0
_CLOSE_S = 15.0
"""Longer than a store tries to write what is left."""
_NOTHING = StoreCounters(0, 0, 0, 0, 0.0)


@dataclass(frozen=True, slots=True)
class Order:
    """What a writer is told. ``changes``: so many, packed, one after the other. ``obeys``: the controller
    takes commands. ``last``: write what is left, and end.
    """

    obeys: bool
    last: bool
    count: int
    changes: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """What a writer tells: its counters, and the notices and commands since the last answer."""

    counters: StoreCounters
    notices: list[Notice]
    commands: list[Command]


class _Writer:
    """A process of its own, started clean: a fork would take eventlet's state along. A terminal's signals do
    not reach it. Raises OSError where there can be none.
    """

    def __init__(self, spec: RunSpec) -> None:
        command = [sys.executable, "-P", "-m", "flowdb.writer"]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, env=environment, start_new_session=True
        )
        self._send(spec)

    def ask(self, order: Order) -> Answer:
        """Raises what pipes and pickle raise where it is gone."""
        self._send(order)
        assert self._process.stdout  # noqa: S101 - a pipe
        answer: Answer = pickle.load(self._process.stdout)  # noqa: S301 - our own process
        return answer

    def end(self, pause: Callable[[float], Any]) -> None:
        """Not by ``wait``, which is eventlet's and wants its hub."""
        self._process.kill()
        while self._process.poll() is None:
            pause(0.005)
        for pipe in filter(None, (self._process.stdin, self._process.stdout)):
            with contextlib.suppress(OSError):
                pipe.close()

    def _send(self, what: RunSpec | Order) -> None:
        assert self._process.stdin  # noqa: S101 - a pipe
        pickle.dump(what, self._process.stdin)
        self._process.stdin.flush()


class StoreApart:
    """What RunStore is, for callers; raises nothing. A writer that is killed is started anew.

    What a killed writer had not written is lost, and counted. A writer whose controller is killed ends at
    once, for a successor may have begun: what it had not written is lost with the controller.
    """

    def __init__(self, spec: RunSpec) -> None:
        threading = native_threading()
        self._spec = spec
        self._lock = threading.Lock()
        self._waiting: list[bytes] = []
        self._sent = 0
        self._waiting_since_s = self._answered_s = time.monotonic()
        self._before = self._answered = _NOTHING
        self._lost = 0
        self._full = False
        self._obeys = False
        self._commands: deque[Command] = deque()
        self._notices: deque[Notice] = deque(maxlen=100)
        self._stopping = threading.Event()
        self._never = threading.Event()
        self._writer: _Writer | None = None
        self._thread = threading.Thread(target=self._run, name="flowdb-exchange", daemon=True)
        self._thread.start()

    @property
    def counters(self) -> StoreCounters:
        with self._lock:
            before, answered = self._before, self._answered
            here = self._sent + len(self._waiting)
            since_s = self._answered_s - answered.lag_s if answered.pending else self._waiting_since_s
            lag_s = time.monotonic() - since_s if answered.pending or here else 0.0
            return StoreCounters(
                written=before.written + answered.written,
                pending=answered.pending + here,
                lost=before.lost + answered.lost + self._lost,
                failures=before.failures + answered.failures,
                lag_s=lag_s,
            )

    def put(self, changes: Iterable[Change]) -> None:
        """Have changes written, in order for each row; returns at once."""
        packed = [pickle.dumps(change.packed()) for change in changes]
        with self._lock:
            if not self._waiting and not self._sent:
                self._waiting_since_s = time.monotonic()
            room = self._spec.max_pending - self._sent - len(self._waiting)
            self._waiting += packed[:room]
            self._lost += len(packed[room:])
            if room < len(packed) and not self._full:
                self._full = True
                text = f"{self._spec.max_pending} changes wait for the writer; further ones are refused"
                self._notices.append((logging.ERROR, text))
        log_notices(self._notices)

    def take_commands(self) -> list[Command]:
        """As RunStore's."""
        self._obeys = True
        return [self._commands.popleft() for _ in range(len(self._commands))]

    def close(self) -> None:
        """Have written what waits, then stop; what cannot be written within 10 s is lost, and logged."""
        self._stopping.set()
        self._thread.join(_CLOSE_S)
        if self._thread.is_alive():
            text = f"{self.counters.pending} changes could not be written and are lost"
            self._notices.append((logging.ERROR, text))
        log_notices(self._notices)

    def _run(self) -> None:
        last = False
        while not last:
            last = self._stopping.wait(EXCHANGE_S)
            try:
                self._exchange(last)
            except Exception as error:  # whatever it is, the exchange goes on
                last = False
                self._lose_writer(error)
        self._end_writer()

    def _exchange(self, last: bool) -> None:
        """Raises what pipes and pickle raise where the writer is gone, or none can be started."""
        if self._writer is None:
            self._writer = _Writer(self._spec)
        with self._lock:
            packed, self._waiting, self._sent = self._waiting, [], len(self._waiting)
        answer = self._writer.ask(Order(self._obeys, last, len(packed), b"".join(packed)))
        with self._lock:
            self._answered, self._sent = answer.counters, 0
            self._answered_s = self._waiting_since_s = time.monotonic()
            self._full = False
        self._commands.extend(answer.commands)
        self._notices.extend(answer.notices)

    def _lose_writer(self, error: Exception) -> None:
        """What it had not written goes with it; another is started with the next exchange."""
        self._end_writer()
        with self._lock:
            counted, answered = self._before, self._answered
            missing = self._sent + answered.pending
            self._before = replace(
                counted,
                written=counted.written + answered.written,
                lost=counted.lost + answered.lost + missing,
                failures=counted.failures + answered.failures + 1,
            )
            self._answered, self._sent = _NOTHING, 0
        why = str(error) or "killed"
        text = f"the writer's process ended ({why}); {missing} changes are lost, another is started"
        self._notices.append((logging.ERROR, text))
        self._never.wait(_RESTART_S)

    def _end_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.end(self._never.wait)
