"""Lists of events: alarms, decisions, clamps and commands, newest first, in pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from flowdb.flow import PortKey
from flowdb.models import AlarmRow, ClampRow, CommandRow, DecisionRow
from webui.queries.names import PortNames, flow_names
from webui.queries.paging import AnySelect, Cursor, Order, cut
from webui.views import (
    Alarm,
    Alarms,
    Candidate,
    Clamp,
    Clamps,
    Command,
    Commands,
    Decision,
    Decisions,
    Page,
)

PRUNED_FLOW = "a flow that was pruned"


def alarms(
    session: Session,
    port: PortKey | None = None,
    between_ns: tuple[int, int] | None = None,
    cursor: Cursor | None = None,
    limit: int = 50,
) -> Alarms:
    """Alarms and ends of alarms, of one port or of all; ``between_ns``: in an interval."""
    statement = _at_port(select(AlarmRow), AlarmRow, port)
    if between_ns is not None:
        statement = statement.where(AlarmRow.received_ns.between(*between_ns))
    rows, page = _page(session, statement, Order(AlarmRow.received_ns, AlarmRow.id), cursor, limit)
    names = PortNames(session)
    return Alarms(items=[alarm_view(row, names) for row in rows], page=page)


def clamps(
    session: Session,
    port: PortKey | None = None,
    standing: bool = False,
    between_ns: tuple[int, int] | None = None,
    cursor: Cursor | None = None,
    limit: int = 50,
) -> Clamps:
    """Clamps at one port or at all.

    ``standing``: only clamps that are not lifted. ``between_ns``: clamps that were in force in an interval.
    """
    statement = _at_port(select(ClampRow), ClampRow, port)
    if standing:
        statement = statement.where(ClampRow.lifted_ns.is_(None))
    if between_ns is not None:
        since_ns, until_ns = between_ns
        lasts = ClampRow.lifted_ns.is_(None) | (ClampRow.lifted_ns >= since_ns)
        statement = statement.where(ClampRow.pushed_ns <= until_ns, lasts)
    rows, page = _page(session, statement, Order(ClampRow.pushed_ns, ClampRow.id), cursor, limit)
    ports, flows = PortNames(session), flow_names(session, (row.flow_id for row in rows))
    return Clamps(items=[clamp_view(row, ports, flows) for row in rows], page=page)


def decisions(
    session: Session, port: PortKey | None = None, cursor: Cursor | None = None, limit: int = 50
) -> Decisions:
    """Decisions at one port or at all."""
    statement = _at_port(select(DecisionRow), DecisionRow, port)
    rows, page = _page(session, statement, Order(DecisionRow.decided_ns, DecisionRow.id), cursor, limit)
    ports, flows = PortNames(session), flow_names(session, (row.flow_id for row in rows))
    causes = select(AlarmRow).where(AlarmRow.id.in_({row.alarm_id for row in rows}))
    alarm_of = {alarm.id: alarm for alarm in session.scalars(causes)}
    with_alarms = ((row, alarm_of.get(row.alarm_id)) for row in rows)
    return Decisions(items=decision_views(with_alarms, ports, flows), page=page)


def commands(session: Session, cursor: Cursor | None = None, limit: int = 50) -> Commands:
    """Commands from people."""
    order = Order(CommandRow.asked_ns, CommandRow.id)
    rows, page = _page(session, select(CommandRow), order, cursor, limit)
    return Commands(items=[command_view(row) for row in rows], page=page)


def command(session: Session, command_id: int) -> Command | None:
    """One command; None if the id is unknown."""
    row = session.get(CommandRow, command_id)
    return None if row is None else command_view(row)


def alarm_view(row: Any, ports: PortNames) -> Alarm:
    """An alarm's row, or its values, as pages show it."""
    return Alarm(port=ports(row.dpid, row.port_no), **_columns(row, Alarm.model_fields, "port"))


def clamp_view(row: Any, ports: PortNames, flows: Mapping[int, str]) -> Clamp:
    """A clamp's row, or its values, as pages show it; ``flows`` are the flows' names."""
    values = _columns(row, Clamp.model_fields, "port", "flow")
    return Clamp(port=ports(row.dpid, row.port_no), flow=flows.get(row.flow_id, PRUNED_FLOW), **values)


def command_view(row: Any) -> Command:
    """A command's row, or its values, as pages show it."""
    return Command.model_validate(row, from_attributes=True)


def decision_views(
    rows: Iterable[tuple[Any, Any]], ports: PortNames, flows: Mapping[int, str]
) -> list[Decision]:
    """Decisions, each with its alarm or None, as pages show them."""
    return [
        Decision(
            alarm=None if alarm is None else alarm_view(alarm, ports),
            port=ports(row.dpid, row.port_no),
            flow=flows.get(row.flow_id, PRUNED_FLOW),
            ranking=[Candidate.model_validate(one) for one in row.ranking],
            **_columns(row, Decision.model_fields, "port", "flow", "alarm", "ranking"),
        )
        for row, alarm in rows
    ]


def _page(
    session: Session, statement: AnySelect, order: Order, cursor: Cursor | None, limit: int
) -> tuple[list[Any], Page]:
    rows = session.scalars(order.of(statement, cursor, limit)).all()

    def key(row: Any) -> tuple[int, int]:
        return getattr(row, order.column.key), row.id

    return cut(rows, cursor, limit, key)


def _at_port(statement: AnySelect, row: Any, port: PortKey | None) -> AnySelect:
    if port is None:
        return statement
    return statement.where(row.dpid == port.dpid, row.port_no == port.port_no)


def _columns(row: Any, names: Iterable[str], *but: str) -> dict[str, Any]:
    return {name: getattr(row, name) for name in names if name not in but}
