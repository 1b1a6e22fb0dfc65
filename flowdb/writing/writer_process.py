"""The writer process: holds a run's store and carries out the requests of the controller's ProcessStore."""

from __future__ import annotations

import io
import logging
import os
import pickle
import signal
import sys
from typing import IO

from flowdb.engine import FlowDbError
from flowdb.writing.flow_changes import unpacked
from flowdb.writing.process_store import WriterReply, WriterRequest
from flowdb.writing.run_store import RunSpec, RunStore
from flowdb.writing.store import LOG, Notice

_NICE = 10
"""The controller gets the CPU first if both want it."""


class _Collector(logging.Handler):
    """Collects the store's log lines for the next reply, because the controller logs them."""

    def __init__(self) -> None:
        super().__init__()
        self._notices: list[Notice] = []

    def emit(self, record: logging.LogRecord) -> None:
        (text,) = record.args or (record.msg,)
        self._notices.append((record.levelno, str(text)))

    def take(self) -> list[Notice]:
        notices, self._notices = self._notices, []
        return notices


def serve(requests: IO[bytes], replies: IO[bytes]) -> None:
    """Carry out requests until the last one, or until the controller's end of the pipe is closed.

    The first reply is the reason why the store cannot be opened, or an empty text.
    """
    collector = _Collector()
    LOG.addHandler(collector)
    LOG.propagate = False
    spec: RunSpec = pickle.load(requests)  # noqa: S301 - from our own controller
    try:
        store = RunStore(spec)
    except FlowDbError as error:
        _reply(replies, str(error))
        return
    _reply(replies, "")
    is_last = False
    while not is_last:
        try:
            request: WriterRequest = pickle.load(requests)  # noqa: S301 - from our own controller
        except (EOFError, pickle.UnpicklingError):
            return
        changes, is_last = io.BytesIO(request.changes), request.is_last
        unpickled = (pickle.load(changes) for _ in range(request.count))  # noqa: S301 - the same
        store.put(map(unpacked, unpickled), request.number, request.since_s)
        commands = store.commands.take(request.wanted_commands)
        if is_last:
            store.close()
        _reply(replies, WriterReply(store.written_mark, store.counters, collector.take(), commands))


def _reply(replies: IO[bytes], message: WriterReply | str) -> None:
    pickle.dump(message, replies)
    replies.flush()


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    os.nice(_NICE)
    serve(sys.stdin.buffer, sys.stdout.buffer)
    os._exit(0)  # do not wait for the store's thread


if __name__ == "__main__":
    main()
