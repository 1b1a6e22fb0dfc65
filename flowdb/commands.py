"""Commands that people give to a controller: the dashboard inserts them, one controller claims each."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from sqlalchemy import Text, cast, insert, select, update
from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session

from flowdb.clock import Clock
from flowdb.flow import NS_PER_S
from flowdb.models import CommandRow
from flowdb.runs import now_of_runs

FlowKind: TypeAlias = Literal["release", "protect", "punish", "policy"]
SwitchKind: TypeAlias = Literal["off", "on"]
Kind: TypeAlias = FlowKind | SwitchKind
FLOW_KINDS: tuple[Kind, ...] = get_args(FlowKind)
"""Commands about flows and ports, which SDTCP carries out."""
SWITCH_KINDS: tuple[Kind, ...] = get_args(SwitchKind)
"""Commands about all switches, which the fabric carries out."""
KINDS = (*FLOW_KINDS, *SWITCH_KINDS)
EXPIRES_AFTER_S = 60
"""A command that no controller claimed within this time is not carried out: its author no longer waits."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command that this controller claimed, and must answer with ``FlowDb.command_done``."""

    id: int
    kind: Kind
    arguments: Mapping[str, Any]
    asked_by: str


def request_command(connection: Connection, kind: Kind, arguments: Mapping[str, Any], asked_by: str) -> int:
    """Insert a command; returns its id. Its row gets the outcome. Raises ValueError for an unknown kind.

    Its time follows the controller's clock, by which it expires, and not this machine's.
    """
    if kind not in KINDS:
        raise ValueError(f"unknown command {kind!r}; use one of: {', '.join(KINDS)}")
    with Session(connection) as session:
        asked_ns = now_of_runs(session, Clock())
    asked = {"kind": kind, "arguments": dict(arguments), "asked_by": asked_by, "asked_ns": asked_ns}
    (row_id,) = connection.execute(insert(CommandRow).values(asked).returning(CommandRow.id)).one()
    return int(row_id)


def claim_commands(
    connection: Connection, run_id: int, now_ns: int, kinds: Collection[str] = KINDS
) -> list[Command]:
    """Claim the commands of some kinds that wait, oldest first.

    Commands that waited too long are marked as failed. So are those whose arguments are not an object,
    because a person wrote the row by hand. Their arguments become an empty object, which all readers can use.
    """
    unclaimed_ones = CommandRow.taken_ns.is_(None), CommandRow.kind.in_(kinds)
    columns = CommandRow.id, CommandRow.kind, CommandRow.asked_by, CommandRow.asked_ns
    as_text = cast(CommandRow.arguments, Text).label("arguments")  # so that the text of one row fails alone
    waiting = select(*columns, as_text).where(*unclaimed_ones).order_by(CommandRow.id)
    claimed = []
    for row in connection.execute(waiting).all():
        values: dict[str, Any] = {"taken_ns": now_ns, "taken_run_id": run_id}
        failed = {"done_ns": now_ns, "succeeded": False}
        arguments = _arguments(row.arguments)
        if arguments is None:
            values |= failed | {"arguments": {}, "outcome": "its arguments are not a JSON object"}
        elif now_ns - row.asked_ns > EXPIRES_AFTER_S * NS_PER_S:
            values |= failed | {"outcome": f"no controller took it within {EXPIRES_AFTER_S} s"}
        unclaimed = (CommandRow.id == row.id) & CommandRow.taken_ns.is_(None)
        claim = update(CommandRow).where(unclaimed).values(values).returning(CommandRow.id)
        if connection.execute(claim).all() and "done_ns" not in values:
            claimed.append(Command(row.id, row.kind, arguments or {}, row.asked_by))
    return claimed


def _arguments(text: str) -> dict[str, Any] | None:
    """The arguments of a command; None if they are not a JSON object. SQLite keeps any text."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
