"""The endpoints of ``/api/v1``."""

from __future__ import annotations

import contextlib
from typing import Any

from flask import Response, abort, request
from sqlalchemy.orm import Session

from flowdb.flow import NS_PER_S, PortKey
from webui import views
from webui.access.security import require_actor
from webui.api.endpoint import ENDPOINTS, MISSING, Endpoint, blueprint, get
from webui.command_requests import CommandRequest
from webui.parameters import (
    BadParameters,
    BottleneckParameters,
    ClampParameters,
    FlowParameters,
    NoParameters,
    PageParameters,
    PortParameters,
    SpanParameters,
    check,
)
from webui.queries import events, network
from webui.queries.bottlenecks import bottlenecks
from webui.queries.experiments import experiment, experiments
from webui.queries.flow_story import flow_story
from webui.queries.flows import flows
from webui.queries.names import PortNames
from webui.queries.ports import alarm_counts, busiest, port, ports, series
from webui.services import services

SERIES_PORTS = 5


@get("/totals", views.Totals)
def totals(session: Session, _asked: NoParameters, now_ns: int) -> views.Totals:
    """Totals of switches, flows, clamps, alarms and controllers."""
    return network.totals(session, ports(session, now_ns), now_ns)


@get("/controllers", views.Run, is_list=True)
def controllers(session: Session, _asked: NoParameters, now_ns: int) -> list[views.Run]:
    """The newest controllers and their settings."""
    return network.runs(session, now_ns)


@get("/switches", views.Switch, is_list=True)
def switches(session: Session, _asked: NoParameters, _now_ns: int) -> list[views.Switch]:
    """All switches."""
    return network.switches(session)


@get("/topology", views.Topology)
def topology(session: Session, _asked: NoParameters, now_ns: int) -> views.Topology:
    """Switches, links and hosts."""
    return network.topology(session, now_ns)


@get("/ports", views.Port, is_list=True)
def all_ports(session: Session, _asked: NoParameters, now_ns: int) -> list[views.Port]:
    """All ports with their newest counters."""
    return ports(session, now_ns)


@get("/ports/<dpid:dpid>/<uint32:port_no>", views.Port)
def one_port(
    session: Session, _asked: NoParameters, now_ns: int, dpid: int, port_no: int
) -> views.Port | None:
    """A port with its newest counters."""
    return port(session, PortKey(dpid, port_no), now_ns)


@get("/ports/<dpid:dpid>/<uint32:port_no>/series", views.PortSeries, SpanParameters, shared=True)
def port_series(
    session: Session, asked: SpanParameters, now_ns: int, dpid: int, port_no: int
) -> views.PortSeries | None:
    """A port's counters, alarms and clamps in an interval."""
    key = PortKey(dpid, port_no)
    if port(session, key, now_ns) is None:
        return None
    since_ns, until_ns = between_ns = _span(asked, now_ns)
    name = PortNames(session)(dpid, port_no)
    return views.PortSeries(
        since_ns=since_ns,
        until_ns=until_ns,
        figures=series(session, name, since_ns, until_ns, asked.points),
        alarms=events.alarms(session, key, between_ns=between_ns, limit=500).items,
        clamps=events.clamps(session, key, between_ns=between_ns, limit=200).items,
    )


@get("/bottlenecks", views.Bottleneck, BottleneckParameters, is_list=True)
def list_bottlenecks(session: Session, asked: BottleneckParameters, now_ns: int) -> list[views.Bottleneck]:
    """The bottlenecks towards hosts: flows, rate and queue, for senders with Adaptive Pacing."""
    return bottlenecks(session, asked.addresses, now_ns)


@get("/busiest", views.Busiest, SpanParameters, shared=True)
def busiest_series(session: Session, asked: SpanParameters, now_ns: int) -> views.Busiest:
    """The counters of the busiest ports in an interval, and the number of alarms."""
    since_ns, until_ns = _span(asked, now_ns)
    chosen = busiest(ports(session, now_ns), SERIES_PORTS)
    return views.Busiest(
        since_ns=since_ns,
        until_ns=until_ns,
        ports=[series(session, one, since_ns, until_ns, asked.points) for one in chosen],
        alarms=alarm_counts(session, since_ns, until_ns, 60),
    )


@get("/flows", views.Flows, FlowParameters)
def list_flows(session: Session, asked: FlowParameters, _now_ns: int) -> views.Flows:
    """Flows: filtered, sorted, in pages."""
    return flows(session, asked.filter, asked.place, asked.limit)


@get("/flows/<rowid:flow_id>", views.FlowStory, shared=True)
def one_flow(session: Session, _asked: NoParameters, now_ns: int, flow_id: int) -> views.FlowStory | None:
    """Everything about a flow, and the answer to "why is it slow?"."""
    return flow_story(session, flow_id, now_ns)


@get("/alarms", views.Alarms, PortParameters)
def list_alarms(session: Session, asked: PortParameters, _now_ns: int) -> views.Alarms:
    """Alarms and ends of alarms, newest first."""
    return events.alarms(session, _port(asked), cursor=asked.place, limit=asked.limit)


@get("/decisions", views.Decisions, PortParameters)
def list_decisions(session: Session, asked: PortParameters, _now_ns: int) -> views.Decisions:
    """Decisions, newest first."""
    return events.decisions(session, _port(asked), cursor=asked.place, limit=asked.limit)


@get("/clamps", views.Clamps, ClampParameters)
def list_clamps(session: Session, asked: ClampParameters, _now_ns: int) -> views.Clamps:
    """Clamps, newest first."""
    return events.clamps(
        session, _port(asked), standing=asked.standing, cursor=asked.place, limit=asked.limit
    )


@get("/commands", views.Commands, PageParameters)
def list_commands(session: Session, asked: PageParameters, _now_ns: int) -> views.Commands:
    """Commands from people, newest first."""
    return events.commands(session, asked.place, asked.limit)


@get("/commands/<rowid:command_id>", views.Command)
def one_command(
    session: Session, _asked: NoParameters, _now_ns: int, command_id: int
) -> views.Command | None:
    """A command and its outcome."""
    return events.command(session, command_id)


@get("/experiments", views.Experiment, is_list=True)
def list_experiments(_session: Session, _asked: NoParameters, _now_ns: int) -> list[views.Experiment]:
    """The lab's result folders, newest first."""
    return experiments(services().settings.results)


@get("/experiments/<name>", views.Experiment)
def one_experiment(
    _session: Session, _asked: NoParameters, _now_ns: int, name: str
) -> views.Experiment | None:
    """A result folder of the lab, with its rows."""
    return experiment(services().settings.results, name)


ENDPOINTS.append(
    Endpoint(
        "/commands", "ask", "Give a command to the controllers; needs a token with the scope act.",
        NoParameters, views.Command, method="post", body=CommandRequest,
    )
)  # fmt: skip


@blueprint.post("/commands")
def ask() -> Response:
    actor = require_actor()
    asked = asked_command()
    database = services().database
    number = database.ask(asked.kind, asked.arguments, actor)
    with database.reading() as session:
        found = events.command(session, number)
    if found is None:
        abort(404, MISSING)
    return Response(found.model_dump_json(), 201, mimetype="application/json")


def asked_command() -> CommandRequest:
    """The command in the request's body. Raises BadParameters, and an HTTP error for another body."""
    return check(CommandRequest, _body())


def _body() -> Any:
    body = None
    with contextlib.suppress(RecursionError):  # the parser of JSON has a limit for nested lists and objects
        body = request.get_json(silent=True)
    if body is None:
        abort(400, "the body is not JSON; send an object with Content-Type: application/json")
    return body


def _span(asked: SpanParameters, now_ns: int) -> tuple[int, int]:
    until_ns = now_ns if asked.until_ns is None else asked.until_ns
    return max(until_ns - asked.span_s * NS_PER_S, 0), until_ns


def _port(asked: PortParameters) -> PortKey | None:
    if asked.dpid is None and asked.port_no is None:
        return None
    if asked.dpid is None or asked.port_no is None:
        raise BadParameters("dpid and port_no name a port together; give both or none")
    return PortKey(int(asked.dpid, 16), asked.port_no)
