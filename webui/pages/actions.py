"""Forms by which a person asks the controllers for something."""

from __future__ import annotations

from flask import Blueprint, flash, redirect, request, url_for
from werkzeug.wrappers import Response

from webui.args import parse
from webui.commands import Asked
from webui.parts import parts
from webui.security import is_local, require_actor

blueprint = Blueprint("actions", __name__)
OUR_OWN = ("csrf_token", "next")


@blueprint.post("/commands")
def ask() -> Response:
    who = require_actor()
    fields = request.form.copy()
    for name in OUR_OWN:
        fields.poplist(name)
    asked = parse(Asked, fields)
    number = parts().database.ask(asked.kind, asked.arguments, who)
    flash(f"Asked for: {asked.kind}. The controller's answer will stand under Actions, number {number}.")
    target = request.form.get("next", "")
    return redirect(target if is_local(target) else url_for("live.command_list"), 303)
