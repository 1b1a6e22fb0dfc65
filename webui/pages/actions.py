"""The actions: the list of commands to the controllers, and the form that requests one."""

from __future__ import annotations

from flask import Blueprint, flash, redirect, request, url_for
from sqlalchemy.orm import Session
from werkzeug.wrappers import Response

from webui.access.security import is_local, require_actor
from webui.command_requests import CommandRequest
from webui.live.page import Query, Values, live_page
from webui.parameters import PageParameters, parse
from webui.queries import events
from webui.queries.names import flow_names
from webui.services import services

blueprint = Blueprint("actions", __name__)
FORM_FIELDS = ("csrf_token", "next")
"""Fields of every form that do not belong to the command."""


@live_page("/commands", "Actions", "command_rows", navigation=60, template="command_list.html")
def command_list(session: Session, query: Query, _now_ns: int) -> Values:
    asked = parse(PageParameters, query)
    found = events.commands(session, asked.place, asked.limit)
    flow_ids = (one.arguments.get("flow") for one in found.items)
    names = flow_names(session, (flow_id for flow_id in flow_ids if isinstance(flow_id, int)))
    return {"commands": found.items, "page": found.page, "given": {}, "names": names}


@blueprint.post("/commands")
def ask() -> Response:
    actor = require_actor()
    fields = request.form.copy()
    for name in FORM_FIELDS:
        fields.poplist(name)
    asked = parse(CommandRequest, fields)
    number = services().database.ask(asked.kind, asked.arguments, actor)
    flash(f"Requested: {asked.kind}. The page Actions shows the controller's answer, number {number}.")
    target = request.form.get("next", "")
    return redirect(target if is_local(target) else url_for("live.command_list"), 303)
