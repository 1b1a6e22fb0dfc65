"""Why a flow was slowed down: one query for `weir why`, the dashboard and its API.

NoSuchFlow   the database holds no such flow
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Row, Select, and_, func, select
from sqlalchemy.orm import Session

from flowdb.clock import Clock
from flowdb.flow import FiveTuple
from flowdb.models import AlarmRow, Base, ClampRow, CommandRow, DecisionRow, FlowRow, HopRow, RunRow
from flowdb.runs import RUN_SHIFT, is_gone

MOST_FLOWS = 10
MOST_EVENTS = 100
COMMANDS_SEARCHED = 500
"""The arguments of a command are JSON, which no index covers; people write few commands."""

LARGEST_ID = 2**63 - 1
"""The databases hold no larger integer, and SQLite's driver refuses to look for one."""

Values = Row[Any]
"""A row's columns as a named tuple: plain values that need no open session."""
AnyClamp = TypeVar("AnyClamp", bound=Any)
"""A clamp's row, or a view of it."""


class NoSuchFlow(LookupError):
    """The database holds no such flow."""


@dataclass(frozen=True, slots=True)
class ExplainedDecision:
    """A decision and its cause: the alarm or the command that led to it; None if it was not recorded."""

    decision: Values
    alarm: Values | None
    command: Values | None


@dataclass(frozen=True, slots=True)
class ClampTotals:
    """How many clamps a flow had, and for how long the lifted ones lasted together."""

    count: int
    lifted_after_ns: int


@dataclass(frozen=True, slots=True)
class FlowExplanation:
    """A flow, its path from the sender on, the decisions, clamps and commands, each newest first.

    ``all_decisions``: their number, also of the older ones that ``decisions`` leaves out. ``totals`` are of
    all clamps of the flow, also of the older ones that ``clamps`` leaves out. ``left_open``: of clamps whose
    controller is gone and did not lift them, when it was last seen, by the clamp's id.
    """

    flow: Values
    path: tuple[Values, ...]
    decisions: tuple[ExplainedDecision, ...]
    all_decisions: int
    clamps: tuple[Values, ...]
    commands: tuple[Values, ...]
    totals: ClampTotals
    left_open: Mapping[int, int]

    @property
    def standing_clamp(self) -> Values | None:
        """The clamp that limits the flow now."""
        return limiting_clamp(self.clamps)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON: every column, datapath ids in 16 hexadecimal digits, oldest first."""
        return {
            "flow": as_json(self.flow),
            "path": [as_json(hop) for hop in self.path],
            "all_decisions": self.all_decisions,
            "decisions": [
                as_json(one.decision)
                | {
                    "alarm": one.alarm and as_json(one.alarm),
                    "command": one.command and as_json(one.command),
                }
                for one in reversed(self.decisions)
            ],
            "clamps": [
                as_json(clamp) | {"left_open_ns": self.left_open.get(clamp.id)}
                for clamp in reversed(self.clamps)
            ],
            "commands": [as_json(command) for command in reversed(self.commands)],
        }


def limiting_clamp(clamps: Iterable[AnyClamp]) -> AnyClamp | None:
    """The clamp that limits a flow: of the clamps that stand, the one with the smallest window.

    None: none stands.
    """
    standing = (clamp for clamp in clamps if clamp.lifted_ns is None)
    return min(standing, key=lambda clamp: clamp.window_bytes, default=None)


def find_flows(session: Session, name: str) -> tuple[list[int], int]:
    """The ids of the flows that ``name``, an id or a 5-tuple, means: the newest ten, and the number of all.

    Raises NoSuchFlow, and ValueError if ``name`` is neither.
    """
    unknown = NoSuchFlow(f"the flow database holds no flow {name}; `weir db stats` shows what it holds")
    if name.isdecimal():
        if len(name) > len(str(LARGEST_ID)) or int(name) > LARGEST_ID:
            raise unknown
        is_named = FlowRow.id == int(name)
    else:
        key = FiveTuple.parse(name)
        is_named = and_(
            FlowRow.src == key.src,
            FlowRow.dst == key.dst,
            FlowRow.src_port == key.src_port,
            FlowRow.dst_port == key.dst_port,
        )
    newest = select(FlowRow.id).where(is_named).order_by(FlowRow.opened_ns.desc()).limit(MOST_FLOWS)
    found = session.scalars(newest).all()
    if not found:
        raise unknown
    return list(found), _count(session, is_named)


def explain_flow(
    session: Session, flow_id: int, most_decisions: int = MOST_EVENTS, most_clamps: int | None = MOST_EVENTS
) -> FlowExplanation | None:
    """Everything that the database holds about a flow; None if it does not hold the flow.

    ``most_decisions`` and ``most_clamps`` keep the newest; None keeps all.
    """
    flow = session.execute(_values(FlowRow).where(FlowRow.id == flow_id)).first()
    if flow is None:
        return None
    path = _values(HopRow).where(HopRow.flow_id == flow_id).order_by(HopRow.position)
    decisions = (
        _values(DecisionRow)
        .where(DecisionRow.flow_id == flow_id)
        .order_by(DecisionRow.decided_ns.desc(), DecisionRow.id.desc())
        .limit(most_decisions)
    )
    newest = (
        _values(ClampRow)
        .where(ClampRow.flow_id == flow_id)
        .order_by(ClampRow.pushed_ns.desc(), ClampRow.id.desc())
        .limit(most_clamps)
    )
    clamps = tuple(session.execute(newest))
    return FlowExplanation(
        flow,
        tuple(session.execute(path)),
        tuple(_with_causes(session, session.execute(decisions).all())),
        _count(session, DecisionRow.flow_id == flow_id),
        clamps,
        tuple(_commands_about(session, flow_id)),
        _clamp_totals(session, flow_id),
        _left_open(session, clamps),
    )


def as_json(values: Values) -> dict[str, Any]:
    """A row's columns as JSON has them; a datapath id as 16 hexadecimal digits."""
    named = values._asdict()
    return named | ({"dpid": f"{named['dpid']:016x}"} if "dpid" in named else {})


def _values(row: type[Base]) -> Select[*tuple[Any, ...]]:
    return select(*row.__table__.columns)


def _count(session: Session, condition: ColumnElement[bool]) -> int:
    """The number of rows that meet a condition on the columns of their table."""
    return session.scalar(select(func.count()).where(condition)) or 0


def _clamp_totals(session: Session, flow_id: int) -> ClampTotals:
    lasted = func.sum(ClampRow.lifted_ns - ClampRow.pushed_ns)
    count, lifted_after_ns = session.execute(
        select(func.count(), lasted).where(ClampRow.flow_id == flow_id)
    ).one()
    return ClampTotals(count, int(lifted_after_ns or 0))


def _left_open(session: Session, clamps: Iterable[Values]) -> dict[int, int]:
    """The clamps that stand although their controller is gone, with the time at which it was last seen.

    The next controller records their end.
    """
    run_of = {clamp.id: clamp.id >> RUN_SHIFT for clamp in clamps if clamp.lifted_ns is None}
    if not run_of:
        return {}
    clock, runs = Clock(), session.execute(_values(RunRow).where(RunRow.id.in_(set(run_of.values()))))
    last_seen_ns = {run.id: run.last_seen_ns for run in runs if is_gone(run, clock)}
    return {clamp_id: last_seen_ns[run] for clamp_id, run in run_of.items() if run in last_seen_ns}


def _with_causes(session: Session, decisions: Iterable[Values]) -> Iterable[ExplainedDecision]:
    decisions = list(decisions)
    alarms = _by_id(session, AlarmRow, {decision.alarm_id for decision in decisions})
    commands = _by_id(session, CommandRow, {decision.command_id for decision in decisions})
    for decision in decisions:
        yield ExplainedDecision(decision, alarms.get(decision.alarm_id), commands.get(decision.command_id))


def _by_id(
    session: Session, row: type[AlarmRow | CommandRow], ids: set[int | None]
) -> dict[int | None, Values]:
    if not ids - {None}:
        return {}
    return {one.id: one for one in session.execute(_values(row).where(row.id.in_(ids - {None})))}


def _commands_about(session: Session, flow_id: int) -> Iterable[Values]:
    newest = _values(CommandRow).order_by(CommandRow.asked_ns.desc()).limit(COMMANDS_SEARCHED)
    return (row for row in session.execute(newest) if row.arguments.get("flow") == flow_id)
