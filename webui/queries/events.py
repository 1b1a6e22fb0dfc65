"""Lists of what happened: alarms, decisions, clamps and commands, newest first, by pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from flowdb.flow import PortKey
from flowdb.models import AlarmRow, ClampRow, CommandRow, DecisionRow
from webui.paging import AnySelect, Cursor, Order, cut
from webui.queries.names import PortNames, flow_names
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


def alarms(
    session: Session,
    port: PortKey | None = None,
    since_ns: int | None = None,
    cursor: Cursor | None = None,
    limit: int = 50,
) -> Alarms:
    """Alarms and their ends, of a port or of all."""
    statement = _at_port(select(AlarmRow), AlarmRow, port)
    if since_ns is not None:
        statement = statement.where(AlarmRow.received_ns >= since_ns)
    rows, page = _page(session, statement, Order(AlarmRow.received_ns, AlarmRow.id), cursor, limit)
    names = PortNames(session)
    return Alarms(items=[_alarm(row, names) for row in rows], page=page)


def clamps(
    session: Session,
    port: PortKey | None = None,
    flow_id: int | None = None,
    standing: bool = False,
    since_ns: int | None = None,
    cursor: Cursor | None = None,
    limit: int = 50,
) -> Clamps:
    """Clamps of a port, of a flow or of all; ``standing``: those that are not lifted yet."""
    statement = _at_port(select(ClampRow), ClampRow, port)
    if flow_id is not None:
        statement = statement.where(ClampRow.flow_id == flow_id)
    if standing:
        statement = statement.where(ClampRow.lifted_ns.is_(None))
    if since_ns is not None:
        statement = statement.where(ClampRow.pushed_ns >= since_ns)
    rows, page = _page(session, statement, Order(ClampRow.pushed_ns, ClampRow.id), cursor, limit)
    names, flows = PortNames(session), flow_names(session, (row.flow_id for row in rows))
    return Clamps(items=[_clamp(row, names, flows) for row in rows], page=page)


def decisions(
    session: Session,
    port: PortKey | None = None,
    flow_id: int | None = None,
    cursor: Cursor | None = None,
    limit: int = 50,
) -> Decisions:
    """Decisions at a port, about a flow or all."""
    statement = _at_port(select(DecisionRow), DecisionRow, port)
    if flow_id is not None:
        statement = statement.where(DecisionRow.flow_id == flow_id)
    rows, page = _page(session, statement, Order(DecisionRow.decided_ns, DecisionRow.id), cursor, limit)
    names, flows = PortNames(session), flow_names(session, (row.flow_id for row in rows))
    of_rows = AlarmRow.id.in_({row.alarm_id for row in rows})
    raised = {row.id: _alarm(row, names) for row in session.scalars(select(AlarmRow).where(of_rows))}
    items = [_decision(row, names, flows, raised.get(row.alarm_id or 0)) for row in rows]
    return Decisions(items=items, page=page)


def commands(session: Session, cursor: Cursor | None = None, limit: int = 50) -> Commands:
    """What people asked for."""
    order = Order(CommandRow.asked_ns, CommandRow.id)
    rows, page = _page(session, select(CommandRow), order, cursor, limit)
    return Commands(items=[Command.model_validate(row, from_attributes=True) for row in rows], page=page)


def command(session: Session, command_id: int) -> Command | None:
    """One command; None where there is none."""
    row = session.get(CommandRow, command_id)
    return None if row is None else Command.model_validate(row, from_attributes=True)


def _page(
    session: Session, statement: AnySelect, order: Order, cursor: Cursor | None, limit: int
) -> tuple[list[Any], Page]:
    rows = session.scalars(order.of(statement, cursor, limit)).all()
    key: Callable[[Any], tuple[int, int]] = lambda row: (getattr(row, order.column.key), row.id)  # noqa: E731
    return cut(rows, cursor, limit, key)


def _at_port(statement: AnySelect, row: Any, port: PortKey | None) -> AnySelect:
    if port is None:
        return statement
    return statement.where(row.dpid == port.dpid, row.port_no == port.port_no)


def _alarm(row: AlarmRow, names: PortNames) -> Alarm:
    return Alarm(port=names(row.dpid, row.port_no), **_values(row, Alarm.model_fields, "port"))


def _clamp(row: ClampRow, names: PortNames, flows: dict[int, str]) -> Clamp:
    values = _values(row, Clamp.model_fields, "port", "flow")
    return Clamp(port=names(row.dpid, row.port_no), flow=flows.get(row.flow_id, "a flow gone"), **values)


def _decision(row: DecisionRow, names: PortNames, flows: dict[int, str], alarm: Alarm | None) -> Decision:
    values = _values(row, Decision.model_fields, "port", "flow", "alarm", "ranking")
    return Decision(
        alarm=alarm,
        port=names(row.dpid, row.port_no),
        flow=flows.get(row.flow_id, "a flow gone"),
        ranking=[Candidate.model_validate(one) for one in row.ranking],
        **values,
    )


def _values(row: Any, names: Sequence[str] | dict[str, Any], *but: str) -> dict[str, Any]:
    return {name: getattr(row, name) for name in names if name not in but}
