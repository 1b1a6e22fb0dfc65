"""The list of ports, and the page of one port: its queue, clamps, flows and alarms."""

from __future__ import annotations

from sqlalchemy.orm import Session

from flowdb.flow import PortKey
from webui.live.page import Query, Values, live_page
from webui.parameters import NoParameters, SpanParameters, parse
from webui.queries import events
from webui.queries.flows import through
from webui.queries.ports import port, ports

RECENT = 12


@live_page("/ports", "Ports", "ports", navigation=30)
def port_list(session: Session, query: Query, now_ns: int) -> Values:
    parse(NoParameters, query)
    return {"ports": ports(session, now_ns)}


@live_page(
    "/ports/<dpid:dpid>/<uint32:port_no>",
    "Port",
    *("port_now", "port_clamps", "port_flows", "port_alarms"),
    template="port_page.html",
    missing="no switch has reported this port; the list of ports shows every known port",
)
def port_page(session: Session, query: Query, now_ns: int, dpid: int, port_no: int) -> Values | None:
    span = parse(SpanParameters, query)
    key = PortKey(dpid, port_no)
    found = port(session, key, now_ns)
    if found is None:
        return None
    return {
        "port": found,
        "clamps": events.clamps(session, key, limit=RECENT).items,
        "flows": through(session, key),
        "alarms": events.alarms(session, key, limit=RECENT).items,
        "span_s": span.span_s,
    }
