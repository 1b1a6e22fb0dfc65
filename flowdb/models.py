"""The tables of the flow database.

Times are Unix times in nanoseconds. Row ids are ``run_id << 32 | counter``: made without asking the
database, unique among all controllers that write to it, and exact as a JSON number.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, ForeignKey, Index, Integer, String, TypeDecorator
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

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
    """The declarative base; its type map gives every ``int`` 64 bits."""

    type_annotation_map = {int: BigInteger}  # noqa: RUF012 (SQLAlchemy's form)


class RunRow(Base):
    """One controller process. ``last_seen_ns`` moves while it lives; ``ended_ns`` on an orderly stop."""

    __tablename__ = "runs"
    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    host: Mapped[str]
    pid: Mapped[int]
    started_ns: Mapped[int]
    last_seen_ns: Mapped[int]
    ended_ns: Mapped[int | None]


class SwitchRow(Base):
    __tablename__ = "switches"
    dpid: Mapped[int] = mapped_column(DatapathId, primary_key=True)
    connected: Mapped[bool]
    last_seen_ns: Mapped[int]


class PortRow(Base):
    __tablename__ = "ports"
    dpid: Mapped[int] = mapped_column(DatapathId, primary_key=True)
    port_no: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    name: Mapped[str]
    hw_addr: Mapped[str]
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
    """A directed TCP flow: data from src to dst. ``closed_ns`` is NULL while it lives."""

    __tablename__ = "flows"
    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    src: Mapped[str]
    dst: Mapped[str]
    src_port: Mapped[int]
    dst_port: Mapped[int]
    opened_ns: Mapped[int]
    closed_ns: Mapped[int | None]
    close_reason: Mapped[str | None]
    mss_bytes: Mapped[int]
    receiver_wscale: Mapped[int | None]
    __table_args__ = (Index("flows_closed", "closed_ns"),)


class HopRow(Base):
    """A switch that a flow crosses."""

    __tablename__ = "hops"
    flow_id: Mapped[int] = mapped_column(ForeignKey("flows.id"), primary_key=True)
    dpid: Mapped[int] = mapped_column(DatapathId, primary_key=True)
    in_port: Mapped[int]
    out_port: Mapped[int]


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


class DecisionRow(Base):
    """Which flow was chosen, among how many, and every input of the equation that gave its window.

    ``equation``: 3 or 5 of the SDTCP paper. ``wr_bytes`` is NULL where the receive window is unknown.
    """

    __tablename__ = "decisions"
    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    alarm_id: Mapped[int] = mapped_column(ForeignKey("alarms.id"))
    flow_id: Mapped[int] = mapped_column(ForeignKey("flows.id"))
    decided_ns: Mapped[int]
    policy: Mapped[str]
    candidates: Mapped[int]
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


class ClampRow(Base):
    """A flow's clamp: from its first entry to the lifting of its last."""

    __tablename__ = "clamps"
    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    decision_id: Mapped[int] = mapped_column(ForeignKey("decisions.id"))
    flow_id: Mapped[int] = mapped_column(ForeignKey("flows.id"))
    dpid: Mapped[int] = mapped_column(DatapathId)
    port_no: Mapped[int]
    window_bytes: Mapped[int]
    pushed_ns: Mapped[int]
    lifted_ns: Mapped[int | None]
    lift_reason: Mapped[str | None]
    __table_args__ = (Index("clamps_lifted", "lifted_ns"),)
