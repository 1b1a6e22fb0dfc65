"""The tables of the flow database.

Times are Unix times in nanoseconds, by the clock of the run that wrote them (``clock.py``). A row id is
``run_id << 32 | counter``: it needs no round trip to the database, is unique among all controllers that write
to it, grows with time, and is exact as a JSON number. The indexes serve readers that page through millions of
rows by address, port, state or time. A change here needs a migration (``migrations/``).
"""

from __future__ import annotations

from collections.abc import Mapping
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

from weir_base.port_counters import PORT_COUNTERS

RowId = BigInteger().with_variant(Integer, "sqlite")


class DatapathId(TypeDecorator[int]):
    """An unsigned 64-bit datapath id, stored as 16 hexadecimal digits because SQL integers are signed."""

    impl = String(16)
    cache_ok = True

    def process_bind_param(self, value: int | None, _dialect: Dialect) -> str | None:
        return None if value is None else f"{value:016x}"

    def process_result_value(self, value: str | None, _dialect: Dialect) -> int | None:
        return None if value is None else int(value, 16)


class Base(DeclarativeBase):
    """Base of all models: an ``int`` has 64 bits, dicts and lists are JSON, constraints have names."""

    metadata = MetaData(naming_convention={"fk": "%(table_name)s_%(column_0_name)s_fkey"})
    type_annotation_map = {int: BigInteger, dict[str, Any]: JSON, list[Any]: JSON}  # noqa: RUF012 - SQLAlchemy's form


def _index(name: str, *columns: str, where: ColumnElement[bool] | None = None) -> Index:
    """An index of the rows for which ``where`` is true, by default of all rows."""
    return Index(name, *columns, sqlite_where=where, postgresql_where=where)


class RunRow(Base):
    """One controller process. It updates ``last_seen_ns`` while it runs, and sets ``ended_ns`` when it stops.

    ``boot_id`` identifies the boot of the machine; ``boot_ns`` is the boot's time by the run's clock.
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
    """A switch. ``last_seen_ns``: when it connected or, if it is not connected, disconnected."""

    __tablename__ = "switches"
    dpid: Mapped[int] = mapped_column(DatapathId, primary_key=True)
    connected: Mapped[bool]
    last_seen_ns: Mapped[int]


class PortRow(Base):
    """A port of a switch. ``rate_bps``: the rate that the port reports, NULL if unknown."""

    __tablename__ = "ports"
    dpid: Mapped[int] = mapped_column(DatapathId, primary_key=True)
    port_no: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    name: Mapped[str]
    hw_addr: Mapped[str]
    up: Mapped[bool]
    rate_bps: Mapped[int | None]
    last_seen_ns: Mapped[int]


class LinkRow(Base):
    """A discovered link in one direction: frames leave the port of ``src`` and enter the port of ``dst``."""

    __tablename__ = "links"
    src_dpid: Mapped[int] = mapped_column(DatapathId, primary_key=True)
    src_port_no: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    dst_dpid: Mapped[int] = mapped_column(DatapathId)
    dst_port_no: Mapped[int]
    up: Mapped[bool]
    found_ns: Mapped[int]
    last_seen_ns: Mapped[int]


class HostRow(Base):
    """A host, and the switch port behind which it is. ``last_seen_ns``: when it was learnt or changed."""

    __tablename__ = "hosts"
    mac: Mapped[str] = mapped_column(String(17), primary_key=True)
    ipv4: Mapped[str | None]
    ipv6: Mapped[str | None]
    dpid: Mapped[int] = mapped_column(DatapathId)
    port_no: Mapped[int]
    last_seen_ns: Mapped[int]


class FlowRow(Base):
    """A directed TCP flow: data goes from src to dst. The fields match ``flow.Flow``.

    ``state``: "active", "idle" or "closed". ``closed_ns`` is NULL while the flow is open. The next run puts
    the times of open flows into its own clock.
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
    """A switch that a flow crosses; ``position`` counts from 0, which is the switch next to the sender.

    The table has no foreign key, because PostgreSQL would look up and lock the flow's row for each hop.
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
    """A BUF_ALARM that began an episode or led to a decision (``kind`` "alarm"), or a BUF_NORMAL ("normal").

    ``repeats``: alarms of the same port since its last row that led to no decision. ``non_tcp_percent``: the
    part of the queue that would be there without TCP. If that is 50 or more, the alarm led to no decision.
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
    non_tcp_percent: Mapped[int] = mapped_column(server_default="0")
    __table_args__ = (
        _index("alarms_received", "received_ns"),
        _index("alarms_port", "dpid", "port_no", "received_ns"),
    )


class CommandRow(Base):
    """A command from a person to a controller; ``kind``: one of ``commands.KINDS``.

    ``taken_run_id``: the run that claimed it. ``outcome``: a sentence, NULL until the command is done.
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
    """The choice of a flow from the candidates, with every input of the equation that gave its window.

    ``alarm_id`` or ``command_id`` is the cause, at the port ``dpid``, ``port_no``. ``origin``: "alarm",
    "reflex" (the data plane activated an armed entry) or "command". ``ranking``: the first candidates in the
    policy's order, each ``{"flow_id", "flow", "age_s", "sent_bytes", "rate_bps", "state"}``. ``equation``: 3
    or 5 of the SDTCP paper, 0 for a window that a person gave. ``wr_bytes`` is NULL if the receive window is
    unknown. ``entry``: the entry that was pushed. ``answer``: the switch's answer, NULL until it arrived.
    ``allowance_bytes``: the port's allowance in the place of capacity x RTT; 0: those gave W_c.
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
    allowance_bytes: Mapped[int] = mapped_column(server_default="0")
    __table_args__ = (
        _index("decisions_decided", "decided_ns"),
        _index("decisions_flow", "flow_id", "decided_ns"),
        _index("decisions_alarm", "alarm_id"),
        _index("decisions_command", "command_id"),
        _index("decisions_port", "dpid", "port_no", "decided_ns"),
    )


class ClampRow(Base):
    """A flow's clamp, from its first entry to the removal of its last entry.

    While the switch with the entry is off, the flow is not clamped: the row ends, and a new one begins when
    the switch is turned on.
    """

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
    """A port's counters at a time. ``weir_base.port_counters`` defines them.

    A counter that queries use has a column of its own. ``other_counters`` holds the others by name, if they
    are not 0, and ALARM_UP, also if it is 0: an older version did not write it. ``other_counters`` is NULL in
    rows of a still older version. Counters that only grow count from the start of the switch's data plane.
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
    other_counters: Mapped[dict[str, Any] | None]
    __table_args__ = (
        _index("port_samples_at", "at_ns"),
        {"sqlite_with_rowid": False},
    )

    @staticmethod
    def split(counters: Mapping[str, int]) -> dict[str, Any]:
        """Counters by name as the columns of a row."""
        columns: dict[str, Any] = {name: counters[name] for name in COUNTER_COLUMNS}
        others = {name: counters[name] for name in (*_OTHER_COUNTERS, OBSERVES) if counters.get(name)}
        return columns | {"other_counters": others | {ALARM_UP: counters.get(ALARM_UP, 0)}}

    @staticmethod
    def join(columns: Mapping[str, Any]) -> dict[str, int]:
        """The counters by name of a row's columns, without counters that an older version did not write."""
        counters: dict[str, int] = {name: columns[name] for name in COUNTER_COLUMNS}
        if (others := columns["other_counters"]) is not None:
            counters |= {name: others.get(name, 0) for name in _OTHER_COUNTERS}
        return counters

    @staticmethod
    def observed(columns: Mapping[str, Any]) -> bool:
        """Whether the port of a row's columns counted the packets that it would change, and changed none."""
        return bool((columns["other_counters"] or {}).get(OBSERVES))

    @staticmethod
    def alarm_over(columns: Mapping[str, Any]) -> bool:
        """Whether the port of a row's columns had no alarm. A row of an older version does not say so."""
        return (columns["other_counters"] or {}).get(ALARM_UP) == 0


OBSERVES = "observes"
"""Beside the counters of a sample: 1 if the port counted packets that it would change, and changed none."""

ALARM_UP = "alarm_up"
"""Beside the counters of a sample: 1 if the port's queue was congested."""

COUNTER_COLUMNS = tuple(name for name in PORT_COUNTERS if name in PortSampleRow.__table__.columns)
"""The port counters that have a column of their own in ``port_samples``."""

_OTHER_COUNTERS = tuple(
    name for name, counter in PORT_COUNTERS.items() if counter.recorded and name not in COUNTER_COLUMNS
)


class SettingRow(Base):
    """A section of a run's configuration, including defaults, without secrets."""

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
"""The column that holds the time of a table's rows."""

TIMES_FROM = {"hops": ("flow_id", "flows"), "settings": ("run_id", "runs")}
"""Tables without a time: the column that refers to a row of another table, whose time counts."""
