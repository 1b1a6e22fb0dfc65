"""The names of switches, ports and flows on pages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from flowdb.models import FlowRow, PortRow
from webui.views import PortName

SHORT_DPID = 0xFFFF


def dpid_text(dpid: int) -> str:
    """A datapath id as 16 hexadecimal digits, as in the addresses of pages."""
    return f"{dpid:016x}"


def switch_name(dpid: int | str) -> str:
    """Mininet's name of a switch with a small datapath id, such as s1; otherwise the datapath id."""
    number = int(dpid, 16) if isinstance(dpid, str) else dpid
    return f"s{number}" if number <= SHORT_DPID else dpid_text(number)


def end(address: str, port: int) -> str:
    """One end of a flow; an IPv6 address is in brackets."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def flow_name(flow: Any) -> str:
    """The name of a flow: its ends in the direction of the data."""
    return f"{end(flow.src, flow.src_port)} → {end(flow.dst, flow.dst_port)}"


class PortNames:
    """The names of all ports, read once from the database."""

    def __init__(self, session: Session) -> None:
        rows = session.execute(select(PortRow.dpid, PortRow.port_no, PortRow.name))
        self._names = {(dpid, port_no): name for dpid, port_no, name in rows}

    def __call__(self, dpid: int, port_no: int) -> PortName:
        name = self._names.get((dpid, port_no)) or f"{switch_name(dpid)} port {port_no}"
        return PortName(dpid=dpid_text(dpid), port_no=port_no, name=name)


def flow_names(session: Session, ids: Iterable[int]) -> dict[int, str]:
    """The names of some flows, by id."""
    columns = (FlowRow.id, FlowRow.src, FlowRow.src_port, FlowRow.dst, FlowRow.dst_port)
    rows = session.execute(select(*columns).where(FlowRow.id.in_(set(ids))))
    return {row.id: flow_name(row) for row in rows}
