"""The tables from before databases recorded a version: a flow crosses one switch."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
DPID = sa.String(16)


def _column(name: str, kind: Any = None, nullable: bool = False, **options: Any) -> sa.Column[Any]:
    return sa.Column(name, kind if kind is not None else sa.BigInteger(), nullable=nullable, **options)


def _row_id() -> sa.Column[Any]:
    return _column("id", ROW_ID, primary_key=True)


def _key(name: str, parent: str) -> tuple[sa.Column[Any], sa.ForeignKeyConstraint]:
    return _column(name, ROW_ID), sa.ForeignKeyConstraint([name], [f"{parent}.id"])


def upgrade() -> None:
    op.create_table(
        "runs",
        _row_id(),
        _column("host", sa.String()),
        _column("pid"),
        _column("started_ns"),
        _column("last_seen_ns"),
        _column("ended_ns", nullable=True),
    )
    op.create_table(
        "switches",
        _column("dpid", DPID, primary_key=True),
        _column("connected", sa.Boolean()),
        _column("last_seen_ns"),
    )
    op.create_table(
        "ports",
        _column("dpid", DPID, primary_key=True),
        _column("port_no", primary_key=True, autoincrement=False),
        _column("name", sa.String()),
        _column("hw_addr", sa.String()),
        _column("last_seen_ns"),
    )
    op.create_table(
        "hosts",
        _column("mac", sa.String(17), primary_key=True),
        _column("ipv4", sa.String(), nullable=True),
        _column("ipv6", sa.String(), nullable=True),
        _column("dpid", DPID),
        _column("port_no"),
        _column("last_seen_ns"),
    )
    _flows()
    _decisions()


def _flows() -> None:
    op.create_table(
        "flows",
        _row_id(),
        _column("src", sa.String()),
        _column("dst", sa.String()),
        _column("src_port"),
        _column("dst_port"),
        _column("opened_ns"),
        _column("closed_ns", nullable=True),
        _column("close_reason", sa.String(), nullable=True),
        _column("mss_bytes"),
        _column("receiver_wscale", nullable=True),
    )
    op.create_index("flows_closed", "flows", ["closed_ns"])
    op.create_table(
        "hops",
        *_key("flow_id", "flows"),
        _column("dpid", DPID),
        _column("in_port"),
        _column("out_port"),
        sa.PrimaryKeyConstraint("flow_id", "dpid"),
    )


def _decisions() -> None:
    op.create_table(
        "alarms",
        _row_id(),
        _column("dpid", DPID),
        _column("port_no"),
        _column("kind", sa.String(8)),
        *map(_column, ("queue_pkts", "queue_bytes", "port_rate_bps", "n_i", "crossing_ns", "received_ns")),
        _column("repeats"),
    )
    op.create_table(
        "decisions",
        _row_id(),
        *_key("alarm_id", "alarms"),
        *_key("flow_id", "flows"),
        _column("decided_ns"),
        _column("policy", sa.String()),
        *map(_column, ("candidates", "equation", "capacity_bps", "rtt_us", "queue_bytes", "n", "wc_bytes")),
        _column("wr_bytes", nullable=True),
        *map(_column, ("mss_bytes", "alpha", "window_bytes")),
    )
    op.create_table(
        "clamps",
        _row_id(),
        *_key("decision_id", "decisions"),
        *_key("flow_id", "flows"),
        _column("dpid", DPID),
        *map(_column, ("port_no", "window_bytes", "pushed_ns")),
        _column("lifted_ns", nullable=True),
        _column("lift_reason", sa.String(), nullable=True),
    )
    op.create_index("clamps_lifted", "clamps", ["lifted_ns"])
