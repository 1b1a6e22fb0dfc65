"""The pages that keep themselves up to date: what each reads, and the regions that it is made of.

A page is a template and regions; a region is a template of its own, in ``templates/regions``, made from the
same values. The page comes whole at first; from then on the hub sends the regions that changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flask import Blueprint, abort, render_template, request
from sqlalchemy.orm import Session
from werkzeug.datastructures import MultiDict

from flowdb.flow import PortKey
from webui import layout
from webui.args import FlowArgs, Nothing, Paged, SpanArgs, parse
from webui.live import NoSuchPage
from webui.parts import parts
from webui.queries import events, network
from webui.queries.flows import flows, through
from webui.queries.names import flow_name, flow_names
from webui.queries.ports import busiest, port, ports
from webui.queries.story import story

RECENT = 12

Query = MultiDict[str, str]
Values = dict[str, Any]

blueprint = Blueprint("live", __name__)


@dataclass(frozen=True, slots=True)
class LivePage:
    """``load`` reads what the template and its regions show; None: there is no such thing."""

    rule: str
    template: str
    regions: tuple[str, ...]
    load: Callable[..., Values | None]
    missing: str = "there is no such page"


PAGES: dict[str, LivePage] = {}


def live_page(rule: str, *regions: str, missing: str = "") -> Callable[..., Any]:
    """A page at ``rule``: its function gets the session, the query, the time, and what the rule names."""

    def register(load: Callable[..., Values | None]) -> Callable[..., Values | None]:
        page = LivePage(rule, f"{load.__name__}.html", regions, load, missing)
        PAGES[f"live.{load.__name__}"] = page

        def view(**named: Any) -> str:
            with parts().database.reading() as session:
                values = load(session, request.args, time.time_ns(), **named)
                if values is None:
                    abort(404, page.missing)
            return render_template(page.template, **values)

        blueprint.add_url_rule(rule, load.__name__, view)
        return load

    return register


@live_page("/", "totals", "punished_now", "busiest", "happened", "switches")
def overview(session: Session, query: Query, now_ns: int) -> Values:
    parse(Nothing, query)
    known = ports(session, now_ns)
    return {
        "totals": network.totals(session, known, now_ns),
        "switches": network.switches(session),
        "busiest": busiest(known),
        "punished": events.clamps(session, standing=True, limit=RECENT),
        "decisions": events.decisions(session, limit=RECENT).items,
        "span_s": 3600,
    }


@live_page("/topology", "map", "links")
def topology(session: Session, query: Query, now_ns: int) -> Values:
    parse(Nothing, query)
    found = network.topology(session, now_ns)
    return {"topology": found, "drawing": layout.draw(found)}


@live_page("/ports", "ports")
def port_list(session: Session, query: Query, now_ns: int) -> Values:
    parse(Nothing, query)
    return {"ports": ports(session, now_ns)}


@live_page(
    "/ports/<dpid:dpid>/<uint32:port_no>",
    *("port_now", "port_clamps", "port_flows", "port_alarms"),
    missing="no switch has told of this port; the list of ports shows those that are known",
)
def port_page(session: Session, query: Query, now_ns: int, dpid: int, port_no: int) -> Values | None:
    span = parse(SpanArgs, query)
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


@live_page("/flows", "flow_rows")
def flow_list(session: Session, query: Query, _now_ns: int) -> Values:
    asked = parse(FlowArgs, query)
    given = {name: value for name, value in query.items() if value.strip() and name != "cursor"}
    found = flows(session, asked.filter, asked.place, asked.limit)
    return {"asked": asked, "given": given, "flows": found.items, "page": found.page}


@live_page(
    "/flows/<rowid:flow_id>",
    *("verdict", "flow_facts", "path", "decisions", "clamps"),
    missing="there is no such flow; it may have been pruned from the database",
)
def flow_page(session: Session, query: Query, now_ns: int, flow_id: int) -> Values | None:
    parse(Nothing, query)
    found = story(session, flow_id, now_ns)
    if found is None:
        return None
    return {"story": found, "flow": found.flow, "name": flow_name(found.flow), "clamps": found.clamps}


@live_page("/commands", "command_rows")
def command_list(session: Session, query: Query, _now_ns: int) -> Values:
    asked = parse(Paged, query)
    found = events.commands(session, asked.place, asked.limit)
    about = (one.arguments.get("flow") for one in found.items)
    names = flow_names(session, (flow for flow in about if isinstance(flow, int)))
    return {"commands": found.items, "page": found.page, "given": {}, "names": names}


@live_page("/settings", "controllers")
def settings(session: Session, query: Query, now_ns: int) -> Values:
    parse(Nothing, query)
    return {"runs": network.runs(session, now_ns), "web": parts().settings, "accounts": parts().accounts}


def regions_of(page: LivePage, query: Query, **named: Any) -> dict[str, str]:
    """The regions of a page as HTML. Raises NoSuchPage where what it shows is not there (any more)."""
    with parts().database.reading() as session:
        values = page.load(session, query, time.time_ns(), **named)
    if values is None:
        raise NoSuchPage(page.rule)
    return {name: render_template(f"regions/{name}.html", **values) for name in page.regions}
