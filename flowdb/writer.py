"""The writer's process: a run's store that does as a controller's ``StoreApart`` orders, until its end."""

from __future__ import annotations

import io
import logging
import os
import pickle
import signal
import sys
from typing import IO

from flowdb.apart import Answer, Order
from flowdb.flow_rows import unpacked
from flowdb.run_store import RunStore
from flowdb.store import LOG, Notice

_NICE = 10
"""The controller goes first where both want a CPU."""


class _Collector(logging.Handler):
    """Keeps what the store says for the next answer: the controller logs it."""

    def __init__(self) -> None:
        super().__init__()
        self._notices: list[Notice] = []

    def emit(self, record: logging.LogRecord) -> None:
        (text,) = record.args or (record.msg,)
        self._notices.append((record.levelno, str(text)))

    def take(self) -> list[Notice]:
        notices, self._notices = self._notices, []
        return notices


def obey(orders: IO[bytes], answers: IO[bytes]) -> None:
    """Write what is ordered, until the last order, or until nobody is there to give one."""
    collector = _Collector()
    LOG.addHandler(collector)
    LOG.propagate = False
    store, last = RunStore(pickle.load(orders)), False  # noqa: S301 - our own controller
    while not last:
        try:
            order: Order = pickle.load(orders)  # noqa: S301
        except (EOFError, pickle.UnpicklingError):
            return
        changes, last = io.BytesIO(order.changes), order.last
        store.put(unpacked(pickle.load(changes)) for _ in range(order.count))  # noqa: S301
        commands = store.take_commands() if order.obeys else []
        if last:
            store.close()
        pickle.dump(Answer(store.counters, collector.take(), commands), answers)
        answers.flush()


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    os.nice(_NICE)
    obey(sys.stdin.buffer, sys.stdout.buffer)
    os._exit(0)  # whatever a thread still writes: nobody waits for it


if __name__ == "__main__":
    main()
