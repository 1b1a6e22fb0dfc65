"""The network as the controllers discovered it, the controllers themselves, and totals."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from flowdb.flow import NS_PER_S
from flowdb.models import (
    AlarmRow,
    ClampRow,
    FlowRow,
    HopRow,
    HostRow,
    LinkRow,
    PortRow,
    RunRow,
    SettingRow,
    SwitchRow,
)
from flowdb.runs import ALIVE_FOR_S
from webui.queries.names import PortNames, dpid_text
from webui.queries.ports import ALARMS, ports, unknown_port
from webui.views import Host, Link, Port, PortName, Run, Switch, Topology, Totals

HOUR_NS = 3600 * NS_PER_S
MAX_RUNS = 50

PortPlace = tuple[str, int]


def switches(session: Session) -> list[Switch]:
    """All switches, ordered by datapath id."""
    counted = session.execute(select(PortRow.dpid, func.count()).group_by(PortRow.dpid))
    counts = dict(counted.all())
    return [
        Switch(
            dpid=dpid_text(row.dpid),
            connected=row.connected,
            last_seen_ns=row.last_seen_ns,
            ports=counts.get(row.dpid, 0),
        )
        for row in session.scalars(select(SwitchRow).order_by(SwitchRow.dpid))
    ]


def runs(session: Session, now_ns: int) -> list[Run]:
    """The newest controllers with their settings."""
    rows = session.scalars(select(RunRow).order_by(RunRow.id.desc()).limit(MAX_RUNS)).all()
    noted = select(SettingRow).where(SettingRow.run_id.in_([row.id for row in rows]))
    settings: dict[int, dict[str, object]] = {}
    for one in session.scalars(noted.order_by(SettingRow.section)):
        settings.setdefault(one.run_id, {})[one.section] = one.chosen
    return [
        Run(
            id=row.id,
            host=row.host,
            pid=row.pid,
            started_ns=row.started_ns,
            last_seen_ns=row.last_seen_ns,
            ended_ns=row.ended_ns,
            alive=_is_alive(row, now_ns),
            settings=settings.get(row.id),
        )
        for row in rows
    ]


def totals(session: Session, every_port: Sequence[Port], now_ns: int) -> Totals:
    """Totals of the network. ``every_port``: all ports."""
    connected = session.scalars(select(SwitchRow.connected)).all()
    last_hour = select(ALARMS).where(AlarmRow.received_ns >= now_ns - HOUR_NS)
    newest_runs = session.scalars(select(RunRow).order_by(RunRow.id.desc()).limit(MAX_RUNS))
    return Totals(
        switches_up=sum(connected),
        switches=len(connected),
        live_flows=_count(session, FlowRow, FlowRow.closed_ns.is_(None)),
        clamps=_count(session, ClampRow, ClampRow.lifted_ns.is_(None)),
        alarms_up=sum(port.alarm_up for port in every_port),
        alarms_last_hour=int(session.scalar(last_hour) or 0),
        controllers=sum(_is_alive(run, now_ns) for run in newest_runs),
    )


def topology(session: Session, now_ns: int) -> Topology:
    """Switches, links and hosts; each direction of a link with its port's queue and its flows' rates."""
    known = {(port.dpid, port.port_no): port for port in ports(session, now_ns)}
    names, rates = PortNames(session), port_rates(session)
    rows = session.scalars(select(LinkRow).order_by(LinkRow.src_dpid, LinkRow.src_port_no))
    links = [
        Link(
            src=_port(known, names(row.src_dpid, row.src_port_no)),
            dst=names(row.dst_dpid, row.dst_port_no),
            up=row.up,
            rate_bps=rates.get((dpid_text(row.src_dpid), row.src_port_no), 0),
        )
        for row in rows
    ]
    found = select(HostRow.mac, HostRow.ipv4, HostRow.ipv6, HostRow.dpid, HostRow.port_no)
    hosts = [
        Host(mac=mac, ipv4=ipv4, ipv6=ipv6, dpid=dpid_text(dpid), port_no=port_no)
        for mac, ipv4, ipv6, dpid, port_no in session.execute(found.order_by(HostRow.ipv4, HostRow.mac))
    ]
    places = sorted({(host.dpid, host.port_no) for host in hosts})
    edges = [_edge(known, names(int(dpid, 16), no), rates.get((dpid, no), 0)) for dpid, no in places]
    return Topology(switches=switches(session), links=links, hosts=hosts, edges=edges)


def port_rates(session: Session) -> dict[PortPlace, int]:
    """The sum of the active flows' rates at each port, in bit/s."""
    rows = session.execute(
        select(HopRow.dpid, HopRow.out_port, func.sum(FlowRow.rate_bps))
        .join(FlowRow, FlowRow.id == HopRow.flow_id)
        .where(FlowRow.closed_ns.is_(None), FlowRow.state == "active")
        .group_by(HopRow.dpid, HopRow.out_port)
    )
    return {(dpid_text(dpid), port_no): int(rate) for dpid, port_no, rate in rows}


def _edge(known: dict[PortPlace, Port], place: PortName, rate_bps: int) -> Link:
    port = _port(known, place)
    return Link(src=port, dst=place, up=port.up, rate_bps=rate_bps)


def _port(known: dict[PortPlace, Port], place: PortName) -> Port:
    return known.get((place.dpid, place.port_no)) or unknown_port(place)


def _is_alive(run: RunRow, now_ns: int) -> bool:
    """Whether a run was seen lately. One that was seen in the future had a clock ahead of this one."""
    return run.ended_ns is None and abs(now_ns - run.last_seen_ns) < ALIVE_FOR_S * NS_PER_S


def _count(session: Session, row: type, *conditions: ColumnElement[bool]) -> int:
    return session.scalar(select(func.count()).select_from(row).where(*conditions)) or 0
