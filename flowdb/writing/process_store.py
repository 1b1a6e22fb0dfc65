"""A run's store in a process of its own, so that an alarm never waits while rows are turned into SQL.

Two threads of one process share Python's interpreter lock, and a thread that writes rows holds it most of
the time. Therefore the controller only packs its changes. It collects them for ``EXCHANGE_S`` and sends them
to the writer process (``writer_process.py``), whose reply holds its counters, log lines and commands. Without
changes it asks for a reply every ``QUIET_EXCHANGE_S``.
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
from typing import IO, Any

from flowdb.commands import Command
from flowdb.native_threads import native_threading
from flowdb.writing.changes import Change
from flowdb.writing.command_inbox import CommandInbox
from flowdb.writing.run_store import RunSpec
from flowdb.writing.sent_changes import SentChanges
from flowdb.writing.store import Notice, StoreCounters, log_notices

EXCHANGE_S = 0.05
QUIET_EXCHANGE_S = 0.25
_RESTART_S = 1.0
_CLOSE_S = 15.0
"""Longer than the time that a store takes to give up at its end."""
_ZERO = StoreCounters(0, 0, 0, 0, 0.0)


@dataclass(frozen=True, slots=True)
class WriterRequest:
    """From the controller to the writer process.

    ``number``: of the request. ``since_s``: the monotonic time since which its oldest change waits.
    ``changes`` holds ``count`` packed changes, one after the other. ``is_last``: write everything, then end.
    """

    number: int
    since_s: float
    wanted_commands: frozenset[str]
    is_last: bool
    count: int
    changes: bytes


@dataclass(frozen=True, slots=True)
class WriterReply:
    """From the writer process: its counters, and the notices and commands since the last reply.

    ``written``: the changes of all requests up to this number are written, or refused by the database.
    """

    written: int
    counters: StoreCounters
    notices: list[Notice]
    commands: list[Command]


class _WriterProcess:
    """A fresh interpreter: a fork would copy eventlet's state. A terminal's signals do not reach it.

    The pipes are plain files. Pipes of eventlet's ``Popen`` would run a hub in this thread for
    each message. Raises OSError if the process cannot be started. Call ``open_store`` before ``exchange``.
    """

    def __init__(self) -> None:
        command = [sys.executable, "-P", "-m", "flowdb.writing.writer_process"]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        requests, replies = os.pipe(), os.pipe()
        self._requests: IO[bytes] = open(requests[1], "wb")  # noqa: SIM115 - closed by kill
        self._replies: IO[bytes] = open(replies[0], "rb")  # noqa: SIM115 - the same
        try:
            self._process = subprocess.Popen(
                command, stdin=requests[0], stdout=replies[1], env=environment, start_new_session=True
            )
        except OSError:
            self._close_pipes()
            raise
        finally:
            os.close(requests[0])
            os.close(replies[1])

    def open_store(self, spec: RunSpec) -> None:
        """Let the process open its store, and wait until it has done so.

        Raises OSError with the process's reason if it cannot, and errors of pipes and pickle if it ended.
        """
        self._send(spec)
        if refusal := pickle.load(self._replies):  # noqa: S301 - our own process
            raise OSError(refusal)

    def exchange(self, request: WriterRequest) -> WriterReply:
        """Send a request and wait for the reply. Raises errors of pipes and pickle if the process ended."""
        self._send(request)
        reply: WriterReply = pickle.load(self._replies)  # noqa: S301 - our own process
        return reply

    def kill(self, pause: Callable[[float], Any]) -> None:
        """Kill the process and wait for its end. ``Popen.wait`` is eventlet's, and needs eventlet's hub."""
        self._process.kill()
        while self._process.poll() is None:
            pause(0.005)
        self._close_pipes()

    def _close_pipes(self) -> None:
        for pipe in (self._requests, self._replies):
            with contextlib.suppress(OSError):
                pipe.close()

    def _send(self, message: RunSpec | WriterRequest) -> None:
        pickle.dump(message, self._requests)
        self._requests.flush()


class ProcessStore:
    """The interface of RunStore, over a writer process; raises nothing. A killed writer is restarted.

    The next writer gets the changes that a killed one had not written (``sent_changes.py``). If the
    controller is killed, its writer ends at once, because the next controller may already run; unwritten
    changes are lost.
    """

    def __init__(self, spec: RunSpec) -> None:
        threading = native_threading()
        self._spec = spec
        self._lock = threading.Lock()
        self._waiting: list[bytes] = []
        self._sent = 0
        self._unwritten = SentChanges(spec.max_pending)
        self._sent_since_s = self._waiting_since_s = self._asked_s = time.monotonic()
        self._ended_writers = self._replied = _ZERO
        self._lost = 0
        self._full = False
        self.commands = CommandInbox()
        self._notices: deque[Notice] = deque(maxlen=100)
        self._stopping = threading.Event()
        self._has_changes = threading.Event()
        self._never = threading.Event()
        self._writer: _WriterProcess | None = None
        self._thread = threading.Thread(target=self._run, name="flowdb-exchange", daemon=True)
        self._thread.start()

    @property
    def counters(self) -> StoreCounters:
        with self._lock:
            ended, replied = self._ended_writers, self._replied
            unsent = self._sent + len(self._waiting)
            now_s = time.monotonic()
            return StoreCounters(
                written=ended.written + replied.written,
                pending=replied.pending + unsent,
                lost=ended.lost + replied.lost + self._lost,
                failures=ended.failures + replied.failures,
                lag_s=now_s - self._oldest_s(now_s),
            )

    def _oldest_s(self, now_s: float) -> float:
        """The monotonic time since which the oldest unwritten change waits; ``now_s``: none waits."""
        return min(
            self._asked_s - self._replied.lag_s if self._replied.pending else now_s,
            self._sent_since_s if self._sent else now_s,
            self._waiting_since_s if self._waiting else now_s,
        )

    def put(self, changes: Iterable[Change]) -> None:
        """Queue changes for writing; returns at once. Changes of one row are written in order."""
        packed = [pickle.dumps(change.packed()) for change in changes]
        with self._lock:
            if not self._waiting:
                self._waiting_since_s = time.monotonic()
            room = max(0, self._spec.max_pending - self._sent - len(self._waiting))
            self._waiting += packed[:room]
            self._lost += len(packed[room:])
            if room < len(packed) and not self._full:
                self._full = True
                text = f"{self._spec.max_pending} changes wait for the writer; further ones are refused"
                self._notices.append((logging.ERROR, text))
        self._has_changes.set()
        log_notices(self._notices)

    def close(self) -> None:
        """Write the waiting changes, then stop. Changes not written within 10 s are lost, and logged."""
        self._stopping.set()
        self._has_changes.set()
        self._thread.join(_CLOSE_S)
        if self._thread.is_alive():
            text = f"{self.counters.pending} changes could not be written and are lost"
            self._notices.append((logging.ERROR, text))
        log_notices(self._notices)

    def _run(self) -> None:
        is_last = False
        while not is_last:
            self._has_changes.wait(QUIET_EXCHANGE_S)
            is_last = self._stopping.wait(EXCHANGE_S)
            self._has_changes.clear()
            try:
                self._exchange(is_last)
            except Exception as error:  # no error may stop the exchange
                is_last = False
                self._replace_writer(error)
        self._kill_writer()

    def _exchange(self, is_last: bool) -> None:
        """Raises the errors of pipes and pickle if the writer ended, and OSError if none can be started.

        Changes wait until the writer has opened its store: one that cannot do so has not read them.
        """
        if self._writer is None:
            self._writer = _WriterProcess()
            self._writer.open_store(self._spec)
        with self._lock:
            packed, self._waiting, self._sent = self._waiting, [], len(self._waiting)
            self._sent_since_s = self._waiting_since_s
        number = self._unwritten.add(packed)
        kinds, asked_s = self.commands.kinds, time.monotonic()
        request = WriterRequest(number, self._sent_since_s, kinds, is_last, len(packed), b"".join(packed))
        reply = self._writer.exchange(request)
        self._unwritten.written(reply.written)
        with self._lock:
            self._replied, self._sent = reply.counters, 0
            self._asked_s = asked_s
            self._full = False
        self.commands.put(reply.commands)
        self._notices.extend(reply.notices)

    def _replace_writer(self, error: Exception) -> None:
        """Let what the ended writer had not written wait again. The next exchange starts another writer."""
        self._kill_writer()
        again, lost = self._unwritten.take_back()
        with self._lock:
            ended, replied = self._ended_writers, self._replied
            self._waiting_since_s = self._oldest_s(time.monotonic())
            self._waiting[:0] = again
            waiting = len(self._waiting)
            self._ended_writers = replace(
                ended,
                written=ended.written + replied.written,
                lost=ended.lost + replied.lost + lost,
                failures=ended.failures + replied.failures + 1,
            )
            self._replied, self._sent = _ZERO, 0
        why = str(error) or "killed"
        text = f"the writer process ended ({why}); another one gets {waiting} changes, {lost} are lost"
        self._notices.append((logging.ERROR, text))
        self._never.wait(_RESTART_S)

    def _kill_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.kill(self._never.wait)
