"""Takes commands out of the database, in a thread of its own: no controller waits for SQL."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from sqlalchemy import select, update
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from flowdb._native import native_threading
from flowdb.clock import Clock
from flowdb.engine import first_line, open_engine, open_reader
from flowdb.models import CommandRow

_AT_ONCE = 100


class Taken(NamedTuple):
    """A command that is this controller's to obey."""

    id: int
    kind: str
    arguments: dict[str, Any]


class Inbox:
    """Looks every ``every_s`` for commands that nobody took; the app empties ``taken`` and ``problems``.

    Each command is taken by one controller alone. The thread is a native one under every framework.
    """

    def __init__(self, url: str, run_id: int, clock: Clock, every_s: float = 0.5) -> None:
        threading = native_threading()
        self.taken: deque[Taken] = deque()
        self.problems: deque[str] = deque(maxlen=10)
        self._reader, self._writer = open_reader(url), open_engine(url)
        self._run_id = run_id
        self._clock = clock
        self._every_s = every_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flowdb-inbox", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(5)

    def _run(self) -> None:
        failing = False
        while not self._stopping.wait(self._every_s):
            try:
                self.taken.extend(self._take())
                failing = False
            except SQLAlchemyError as error:
                if not failing:
                    self.problems.append(f"commands cannot be read, trying again: {first_line(error)}")
                failing = True

    def _take(self) -> list[Taken]:
        waiting = select(CommandRow).where(CommandRow.taken_ns.is_(None)).order_by(CommandRow.id)
        with self._reader.connect() as connection:
            if connection.execute(waiting.limit(1)).first() is None:
                return []
        with self._writer.begin() as connection, Session(connection) as session, session.begin():
            rows = session.scalars(waiting.limit(_AT_ONCE)).all()
            return [Taken(row.id, row.kind, row.arguments) for row in rows if self._mine(session, row)]

    def _mine(self, session: Session, row: CommandRow) -> bool:
        took = (
            update(CommandRow)
            .where(CommandRow.id == row.id, CommandRow.taken_ns.is_(None))
            .values(taken_run_id=self._run_id, taken_ns=self._clock.now_ns())
            .returning(CommandRow.id)
        )
        return session.scalar(took) is not None
