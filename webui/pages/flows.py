"""The list of flows, and the page of one flow, which answers why it is slow."""

from __future__ import annotations

from sqlalchemy.orm import Session

from webui.live.page import Query, Values, live_page
from webui.parameters import FlowParameters, NoParameters, parse
from webui.queries.flow_story import flow_story
from webui.queries.flows import flows
from webui.queries.names import flow_name


@live_page("/flows", "Flows", "flow_rows", navigation=40, template="flow_list.html")
def flow_list(session: Session, query: Query, _now_ns: int) -> Values:
    asked = parse(FlowParameters, query)
    given = {name: value for name, value in query.items() if value.strip() and name != "cursor"}
    found = flows(session, asked.filter, asked.place, asked.limit)
    return {"asked": asked, "given": given, "flows": found.items, "page": found.page}


@live_page(
    "/flows/<rowid:flow_id>",
    "Flow",
    *("verdict", "flow_facts", "path", "decisions", "clamps"),
    template="flow_page.html",
    missing="there is no such flow; it may have been pruned from the database",
)
def flow_page(session: Session, query: Query, now_ns: int, flow_id: int) -> Values | None:
    parse(NoParameters, query)
    story = flow_story(session, flow_id, now_ns)
    if story is None:
        return None
    return {"story": story, "flow": story.flow, "name": flow_name(story.flow)}
