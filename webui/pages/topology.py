"""The topology: a map of switches, links and hosts, and a table of the links."""

from __future__ import annotations

from sqlalchemy.orm import Session

from webui import network_map
from webui.live.page import Query, Values, live_page
from webui.parameters import NoParameters, parse
from webui.queries import network


@live_page("/topology", "Topology", "map", "links", navigation=20)
def topology(session: Session, query: Query, now_ns: int) -> Values:
    parse(NoParameters, query)
    found = network.topology(session, now_ns)
    return {"topology": found, "drawing": network_map.draw(found)}
