"""The overview: totals, flows that are punished now, the busiest ports, recent decisions, switches."""

from __future__ import annotations

from sqlalchemy.orm import Session

from webui.live.page import Query, Values, live_page
from webui.parameters import NoParameters, parse
from webui.queries import events, network
from webui.queries.ports import busiest, ports

RECENT = 12


@live_page(
    "/",
    "Overview",
    *("totals", "punished_now", "busiest", "recent_decisions", "switches"),
    navigation=10,
    template="overview.html",
)
def overview(session: Session, query: Query, now_ns: int) -> Values:
    parse(NoParameters, query)
    every_port = ports(session, now_ns)
    return {
        "totals": network.totals(session, every_port, now_ns),
        "switches": network.switches(session),
        "busiest": busiest(every_port),
        "punished": events.clamps(session, standing=True, limit=RECENT),
        "decisions": events.decisions(session, limit=RECENT).items,
    }
