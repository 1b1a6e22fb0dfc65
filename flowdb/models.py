"""The tables of the flow database.

Times are Unix times in nanoseconds, by the clock of the run that wrote them (``clock.py``). Row ids are
``run_id << 32 | counter``: made without asking the database, unique among all controllers that write to it,
growing with time, and exact as a JSON number. The indexes serve a reader who pages through millions of rows
by address, port, state or time. A change here needs a migration (``migrations/``).
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Text,
    TypeDecorator,
    column,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.sql.elements import ColumnElement

RowId = BigInteger().with_variant(Integer, "sqlite")


class DatapathId(TypeDecorator[int]):
    """An unsigned 64-bit datapath id, kept as 16 hexadecimal digits: SQL integers are signed."""

    impl = String(16)
    cache_ok = True

    def process_bind_param(self, value: int | None, _dialect: Dialect) -> str | None:
        return None if value is None else f"{value:016x}"

    def process_result_value(self, value: str | None, _dialect: Dialect) -> int | None:
        return None if value is None else int(value, 16)


class Base(DeclarativeBase):
    """The declarative base: every ``int`` has 64 bits, dicts and lists are JSON, constraints have names."""

    metadata = MetaData(naming_convention={"fk": "%(table_name)s_%(column_0_name)s_fkey"})
    type_annotation_map = {int: BigInteger, dict[str, Any]: JSON, list[Any]: JSON}  # noqa: RUF012


def _index(name: str, *columns: str, where: ColumnElement[bool] | None = None) -> Index:
    """An index, over the rows that ``where`` admits alone."""
    return Index(name, *columns, sqlite_where=where, postgresql_where=where)


class RunRow(Base):
    """One controller process. ``last_seen_ns`` moves while it lives; ``ended_ns`` on an orderly stop.

    ``boot_id``: which start of which machine it ran in; ``boot_ns``: when that was, by the run's clock.
    """

    __tablename__ = "runs"
    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    host: Mapped[str]
    pid: Mapped[int]
    boot_id: Mapped[str] = mapped_column(String(36))
    boot_ns: Mapped[int]
    started_ns: Mapped[int]
    last_seen_ns: Mapped[int]
    ended_ns: Mapped[int | None]


class SwitchRow(Base):
    __tablename__ = "switches"
    dpid: Mapped[int] = mapped_column(DatapathId, primary_key=True)
    connected: Mapped[bool]
    last_seen_ns: Mapped[int]


class PortRow(Base):
    """A port of a switch. ``rate_bps``: what the port itself can carry, NULL when not known."""

    __tablename__ = "ports"
    dpid: Mapped[int] = mapped_column(DatapathId, primary_key=True)
    port_no: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    name: Mapped[str]
    hw_addr: Mapped[str]
    up: Mapped[bool]
    rate_bps: Mapped[int | None]
    last_seen_ns: Mapped[int]


class LinkRow(Base):
    """A link as discovered, in one direction: what leaves ``src`` by its port comes into ``dst`` by its."""

    __tablename__ = "links"
    src_dpid: Mapped[int] = mapped_column(DatapathId, primary_key=True)
    src_port_no: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    dst_dpid: Mapped[int] = mapped_column(DatapathId)
    dst_port_no: Mapped[int]
    up: Mapped[bool]
    found_ns: Mapped[int]
    last_seen_ns: Mapped[int]


class HostRow(Base):
    __tablename__ = "hosts"
    mac: Mapped[str] = mapped_column(String(17), primary_key=True)
    ipv4: Mapped[str | None]
    ipv6: Mapped[str | None]
    dpid: Mapped[int] = mapped_column(DatapathId)
    port_no: Mapped[int]
    last_seen_ns: Mapped[int]


class FlowRow(Base):
    """A directed TCP flow: data from src to dst. The fields are those of ``flow.Flow``.

    ``state``: "active", "idle" or "closed". ``closed_ns`` is NULL while it lives.
    """

    __tablename__ = "flows"
    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    src: Mapped[str]
    dst: Mapped[str]
    src_port: Mapped[int]
    dst_port: Mapped[int]
    opened_ns: Mapped[int]
    closed_ns: Mapped[int | None]
    close_reason: Mapped[str | None]
    state: Mapped[str] = mapped_column(String(8))
    mss_bytes: Mapped[int]
    receiver_wscale: Mapped[int | None]
    sender_wscale: Mapped[int | None]
    handshake_rtt_us: Mapped[int | None]
    sent_bytes: Mapped[int]
    rate_bps: Mapped[int]
    last_active_ns: Mapped[int | None]
    __table_args__ = (
        _index("flows_opened", "opened_ns"),
        _index("flows_src", "src", "opened_ns"),
        _index("flows_dst", "dst", "opened_ns"),
        _index("flows_src_port", "src_port", "opened_ns"),
        _index("flows_dst_port", "dst_port", "opened_ns"),
        _index("flows_live", "state", "opened_ns", where=column("closed_ns").is_(None)),
    )


class HopRow(Base):
    """A switch that a flow crosses; ``position`` counts from 0 at the sender's.

    No foreign key: PostgreSQL would look the flow up, and lock it, for each of its hops.
    """

    __tablename__ = "hops"
    flow_id: Mapped[int] = mapped_column(RowId, primary_key=True, autoincrement=False)
    position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    dpid: Mapped[int] = mapped_column(DatapathId)
    in_port: Mapped[int]
    out_port: Mapped[int]
    __table_args__ = (
        _index("hops_out", "dpid", "out_port", "flow_id"),
        {"sqlite_with_rowid": False},
    )


class AlarmRow(Base):
    """A BUF_ALARM that began an episode or led to a decision, or a BUF_NORMAL (``kind``).

    ``repeats``: alarms of the same port since the row before, which led to nothing.
    """

    __tablename__ = "alarms"
    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    dpid: Mapped[int] = mapped_column(DatapathId)
    port_no: Mapped[int]
    kind: Mapped[str] = mapped_column(String(8))
    queue_pkts: Mapped[int]
    queue_bytes: Mapped[int]
    port_rate_bps: Mapped[int]
    n_i: Mapped[int]
    crossing_ns: Mapped[int]
    received_ns: Mapped[int]
    repeats: Mapped[int]
    __table_args__ = (
        _index("alarms_received", "received_ns"),
        _index("alarms_port", "dpid", "port_no", "received_ns"),
    )


class CommandRow(Base):
    """What a person asks a controller to do; ``kind``: "release", "protect", "punish" or "policy".

    ``taken_run_id``: the run that took it on. ``outcome``: what came of it, in words, once it is done.
    """

    __tablename__ = "commands"
    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    kind: Mapped[str] = mapped_column(String(16))
    arguments: Mapped[dict[str, Any]]
    asked_by: Mapped[str]
    asked_ns: Mapped[int]
    taken_run_id: Mapped[int | None]
    taken_ns: Mapped[int | None]
    done_ns: Mapped[int | None]
    succeeded: Mapped[bool | None]
    outcome: Mapped[str | None] = mapped_column(Text)
    __table_args__ = (
        _index("commands_asked", "asked_ns"),
        _index("commands_waiting", "id", where=column("taken_ns").is_(None)),
    )


class DecisionRow(Base):
    """Which flow was chosen, among how many, and every input of the equation that gave its window.

    ``alarm_id`` or ``command_id`` led to it, at the port ``dpid``, ``port_no``; ``origin``: "alarm",
    "reflex" (the data plane took the step by itself) or "command". ``ranking``: the best of ``candidates``
    in the policy's order, each ``{"flow_id", "flow", "age_s", "sent_bytes", "rate_bps", "state"}``.
    ``equation``: 3 or 5 of the SDTCP paper, 0 for a window that a person gave. ``wr_bytes`` is NULL where
    the receive window is unknown. ``entry``: the entry pushed; ``answer``: the switch's, NULL until it came.
    """

    __tablename__ = "decisions"
    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    alarm_id: Mapped[int | None] = mapped_column(ForeignKey("alarms.id", ondelete="CASCADE"))
    command_id: Mapped[int | None] = mapped_column(ForeignKey("commands.id", ondelete="SET NULL"))
    flow_id: Mapped[int] = mapped_column(ForeignKey("flows.id", ondelete="CASCADE"))
    dpid: Mapped[int] = mapped_column(DatapathId)
    port_no: Mapped[int]
    decided_ns: Mapped[int]
    origin: Mapped[str] = mapped_column(String(8))
    policy: Mapped[str]
    candidates: Mapped[int]
    ranking: Mapped[list[Any]]
    equation: Mapped[int]
    capacity_bps: Mapped[int]
    rtt_us: Mapped[int]
    queue_bytes: Mapped[int]
    n: Mapped[int]
    wc_bytes: Mapped[int]
    wr_bytes: Mapped[int | None]
    mss_bytes: Mapped[int]
    alpha: Mapped[int]
    window_bytes: Mapped[int]
    entry: Mapped[dict[str, Any]]
    answer: Mapped[str | None] = mapped_column(Text)
    answered_ns: Mapped[int | None]
    __table_args__ = (
        _index("decisions_decided", "decided_ns"),
        _index("decisions_flow", "flow_id", "decided_ns"),
        _index("decisions_alarm", "alarm_id"),
        _index("decisions_command", "command_id"),
        _index("decisions_port", "dpid", "port_no", "decided_ns"),
    )


class ClampRow(Base):
    """A flow's clamp: from its first entry to the lifting of its last."""

    __tablename__ = "clamps"
    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    decision_id: Mapped[int] = mapped_column(ForeignKey("decisions.id", ondelete="CASCADE"))
    flow_id: Mapped[int] = mapped_column(ForeignKey("flows.id", ondelete="CASCADE"))
    dpid: Mapped[int] = mapped_column(DatapathId)
    port_no: Mapped[int]
    window_bytes: Mapped[int]
    pushed_ns: Mapped[int]
    lifted_ns: Mapped[int | None]
    lift_reason: Mapped[str | None]
    __table_args__ = (
        _index("clamps_pushed", "pushed_ns"),
        _index("clamps_flow", "flow_id", "pushed_ns"),
        _index("clamps_decision", "decision_id"),
        _index("clamps_port", "dpid", "port_no", "pushed_ns"),
        _index("clamps_standing", "pushed_ns", where=column("lifted_ns").is_(None)),
    )


class PortSampleRow(Base):
    """A port's counters at a time, as the switch gives them (``wire.PortCountersRecord``).

    What is counted (from ``alarms`` on) is counted since the switch's agent began.
    """

    __tablename__ = "port_samples"
    dpid: Mapped[int] = mapped_column(DatapathId, primary_key=True)
    port_no: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    at_ns: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    queue_pkts: Mapped[int]
    queue_bytes: Mapped[int]
    queue_max_pkts: Mapped[int]
    n_i: Mapped[int]
    fair_share_bytes: Mapped[int]
    capacity_bps: Mapped[int]
    alarms: Mapped[int]
    acks_seen: Mapped[int]
    clamped: Mapped[int]
    marked: Mapped[int]
    drops: Mapped[int]
    __table_args__ = (
        _index("port_samples_at", "at_ns"),
        {"sqlite_with_rowid": False},
    )


class SettingRow(Base):
    """What a section of the configuration says in a run, defaults included; secrets left out."""

    __tablename__ = "settings"
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    section: Mapped[str] = mapped_column(String(32), primary_key=True)
    chosen: Mapped[dict[str, Any]]


TIMES = {
    "runs": "started_ns",
    "switches": "last_seen_ns",
    "ports": "last_seen_ns",
    "links": "found_ns",
    "hosts": "last_seen_ns",
    "flows": "opened_ns",
    "alarms": "received_ns",
    "commands": "asked_ns",
    "decisions": "decided_ns",
    "clamps": "pushed_ns",
    "port_samples": "at_ns",
}
"""The column by which a table's rows have a time."""

TIMES_FROM = {"hops": ("flow_id", "flows"), "settings": ("run_id", "runs")}
"""Rows without a time of their own have that of the row that this column names in this table."""
