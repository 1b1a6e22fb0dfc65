"""What people ask a controller to do: put into the database by one process, taken from it by another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from sqlalchemy import insert, select, update
from sqlalchemy.engine import Connection

from flowdb.clock import Clock
from flowdb.flow import NS_PER_S
from flowdb.models import CommandRow

Kind = Literal["release", "protect", "punish", "policy"]
WAITS_S = 60
"""A command that no controller took within this is not carried out any more: who asked has moved on."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command that this controller has taken on, and must answer with ``FlowDb.command_done``."""

    id: int
    kind: Kind
    arguments: Mapping[str, Any]
    asked_by: str


def ask(connection: Connection, kind: Kind, arguments: Mapping[str, Any], asked_by: str) -> int:
    """Put a command; returns its id, whose row gets the outcome. Raises ValueError for an unknown kind."""
    if kind not in get_args(Kind):
        raise ValueError(f"{kind!r} is no command; use one of: {', '.join(get_args(Kind))}")
    asked = {"kind": kind, "arguments": dict(arguments), "asked_by": asked_by, "asked_ns": Clock().now_ns()}
    (row_id,) = connection.execute(insert(CommandRow).values(asked).returning(CommandRow.id)).one()
    return int(row_id)


def take(connection: Connection, run_id: int, now_ns: int) -> list[Command]:
    """Take on what waits, oldest first; what waits for too long is marked as not done."""
    waiting = select(CommandRow).where(CommandRow.taken_ns.is_(None)).order_by(CommandRow.id)
    taken = []
    for row in connection.execute(waiting).all():
        values: dict[str, Any] = {"taken_ns": now_ns, "taken_run_id": run_id}
        if now_ns - row.asked_ns > WAITS_S * NS_PER_S:
            late = f"no controller took it within {WAITS_S} s"
            values |= {"done_ns": now_ns, "succeeded": False, "outcome": late}
        mine = (CommandRow.id == row.id) & CommandRow.taken_ns.is_(None)
        got = connection.execute(update(CommandRow).where(mine).values(values).returning(CommandRow.id)).all()
        if got and "done_ns" not in values:
            taken.append(Command(row.id, row.kind, row.arguments, row.asked_by))
    return taken
