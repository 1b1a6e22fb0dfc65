"""Flows that cross several switches, with their activity; links, samples and commands; indexes."""

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
DPID = sa.String(16)
FOREIGN_KEYS = {"fk": "%(table_name)s_%(column_0_name)s_fkey"}
"""PostgreSQL's default names; SQLite's foreign keys had no names."""


def upgrade() -> None:
    _runs_and_ports()
    _new_tables()
    _flows()
    _hops()
    _decisions()
    _clamps()


def _columns(*names: str, kind: Any = None, nullable: bool = False) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind or sa.BigInteger(), nullable=nullable) for name in names]


def _add_filled(table: str, columns: Iterable[sa.Column[Any]], **values: Any) -> None:
    """Add columns that are not NULL; ``values`` says what the rows that are there get."""
    filled = list(columns)
    for column in filled:
        op.add_column(table, sa.Column(column.name, column.type, nullable=True))
    written = sa.table(table, *(sa.column(column.name, column.type) for column in filled))
    op.execute(written.update().values(values))
    with op.batch_alter_table(table) as batch:
        for column in filled:
            batch.alter_column(column.name, existing_type=column.type, nullable=False)


def _runs_and_ports() -> None:
    _add_filled(
        "runs", [*_columns("boot_id", kind=sa.String(36)), *_columns("boot_ns")], boot_id="", boot_ns=0
    )
    _add_filled("ports", _columns("up", kind=sa.Boolean()), up=True)
    op.add_column("ports", sa.Column("rate_bps", sa.BigInteger()))


def _new_tables() -> None:
    op.create_table(
        "links",
        sa.Column("src_dpid", DPID, primary_key=True),
        sa.Column("src_port_no", sa.BigInteger(), primary_key=True, autoincrement=False),
        *_columns("dst_dpid", kind=DPID),
        *_columns("dst_port_no"),
        *_columns("up", kind=sa.Boolean()),
        *_columns("found_ns", "last_seen_ns"),
    )
    op.create_table(
        "port_samples",
        sa.Column("dpid", DPID, primary_key=True),
        sa.Column("port_no", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("at_ns", sa.BigInteger(), primary_key=True, autoincrement=False),
        *_columns("queue_pkts", "queue_bytes", "queue_max_pkts", "n_i", "fair_share_bytes", "capacity_bps"),
        *_columns("alarms", "acks_seen", "clamped", "marked", "drops"),
        sqlite_with_rowid=False,
    )
    op.create_index("port_samples_at", "port_samples", ["at_ns"])
    op.create_table(
        "commands",
        sa.Column("id", ROW_ID, primary_key=True),
        *_columns("kind", kind=sa.String(16)),
        *_columns("arguments", kind=sa.JSON()),
        *_columns("asked_by", kind=sa.String()),
        *_columns("asked_ns"),
        *_columns("taken_run_id", "taken_ns", "done_ns", nullable=True),
        *_columns("succeeded", kind=sa.Boolean(), nullable=True),
        *_columns("outcome", kind=sa.Text(), nullable=True),
    )
    op.create_index("commands_asked", "commands", ["asked_ns"])
    _partial_index("commands_waiting", "commands", ["id"], "taken_ns IS NULL")


def _flows() -> None:
    op.drop_index("flows_closed", "flows")
    state = sa.case((sa.column("closed_ns").is_(None), "active"), else_="closed")
    _add_filled("flows", _columns("state", kind=sa.String(8)), state=state)
    _add_filled("flows", _columns("sent_bytes", "rate_bps"), sent_bytes=0, rate_bps=0)
    for column in _columns("sender_wscale", "handshake_rtt_us", "last_active_ns", nullable=True):
        op.add_column("flows", column)
    op.create_index("flows_opened", "flows", ["opened_ns"])
    for name in ("src", "dst", "src_port", "dst_port"):
        op.create_index(f"flows_{name}", "flows", [name, "opened_ns"])
    _partial_index("flows_live", "flows", ["state", "opened_ns"], "closed_ns IS NULL")


def _hops() -> None:
    """Made anew, for their key is another. Until now a flow had one."""
    op.rename_table("hops", "hops_before")
    op.create_table(
        "hops",
        sa.Column("flow_id", ROW_ID, primary_key=True, autoincrement=False),
        sa.Column("position", sa.BigInteger(), primary_key=True, autoincrement=False),
        *_columns("dpid", kind=DPID),
        *_columns("in_port", "out_port"),
        sqlite_with_rowid=False,
    )
    op.execute(
        "INSERT INTO hops (flow_id, position, dpid, in_port, out_port)"
        " SELECT flow_id, 0, dpid, in_port, out_port FROM hops_before"
    )
    op.drop_table("hops_before")
    op.create_index("hops_out", "hops", ["dpid", "out_port", "flow_id"])


def _decisions() -> None:
    op.create_index("alarms_received", "alarms", ["received_ns"])
    op.create_index("alarms_port", "alarms", ["dpid", "port_no", "received_ns"])
    alarms = sa.table("alarms", sa.column("id"), sa.column("dpid"), sa.column("port_no"))
    of_alarm = alarms.c.id == sa.literal_column("decisions.alarm_id")
    where = {
        name: sa.select(alarms.c[name]).where(of_alarm).scalar_subquery() for name in ("dpid", "port_no")
    }
    _add_filled("decisions", [*_columns("dpid", kind=DPID), *_columns("port_no")], **where)
    _add_filled("decisions", _columns("origin", kind=sa.String(8)), origin="alarm")
    _add_filled("decisions", _columns("ranking", "entry", kind=sa.JSON()), ranking=[], entry={})
    for column in [
        *_columns("command_id", kind=ROW_ID, nullable=True),
        *_columns("answer", kind=sa.Text(), nullable=True),
        *_columns("answered_ns", nullable=True),
    ]:
        op.add_column("decisions", column)
    with op.batch_alter_table("decisions", naming_convention=FOREIGN_KEYS) as batch:
        batch.alter_column("alarm_id", existing_type=ROW_ID, nullable=True)
        _delete_with_parent(batch, "decisions", alarm_id="alarms", flow_id="flows")
        batch.create_foreign_key(
            "decisions_command_id_fkey", "commands", ["command_id"], ["id"], ondelete="SET NULL"
        )
    op.create_index("decisions_decided", "decisions", ["decided_ns"])
    op.create_index("decisions_flow", "decisions", ["flow_id", "decided_ns"])
    op.create_index("decisions_alarm", "decisions", ["alarm_id"])
    op.create_index("decisions_command", "decisions", ["command_id"])
    op.create_index("decisions_port", "decisions", ["dpid", "port_no", "decided_ns"])


def _clamps() -> None:
    op.drop_index("clamps_lifted", "clamps")
    with op.batch_alter_table("clamps", naming_convention=FOREIGN_KEYS) as batch:
        _delete_with_parent(batch, "clamps", decision_id="decisions", flow_id="flows")
    op.create_index("clamps_pushed", "clamps", ["pushed_ns"])
    op.create_index("clamps_flow", "clamps", ["flow_id", "pushed_ns"])
    op.create_index("clamps_decision", "clamps", ["decision_id"])
    op.create_index("clamps_port", "clamps", ["dpid", "port_no", "pushed_ns"])
    _partial_index("clamps_standing", "clamps", ["pushed_ns"], "lifted_ns IS NULL")


def _delete_with_parent(batch: Any, table: str, **parents: str) -> None:
    """Delete rows together with the rows that they refer to."""
    for column, parent in parents.items():
        name = f"{table}_{column}_fkey"
        batch.drop_constraint(name, type_="foreignkey")
        batch.create_foreign_key(name, parent, [column], ["id"], ondelete="CASCADE")


def _partial_index(name: str, table: str, columns: list[str], condition: str) -> None:
    where = sa.text(condition)
    op.create_index(name, table, columns, sqlite_where=where, postgresql_where=where)
