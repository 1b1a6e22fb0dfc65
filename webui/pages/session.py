"""Log in, log out, and the health check."""

from __future__ import annotations

import time

from flask import (
    Blueprint,
    Response,
    abort,
    current_app,
    flash,
    g,
    make_response,
    redirect,
    render_template,
    request,
    url_for,
)
from werkzeug.wrappers import Response as BaseResponse

from webui.access.accounts import TooManyChecks
from webui.access.guard import guard
from webui.access.known_browsers import known_browser, remember_browser
from webui.access.security import client, is_local, log_in, log_out
from webui.services import services

LONGEST_FIELD = 1024
MOST_WAIT_S = 10.0
"""A person in a known browser waits this long for others' logins to be checked; others do not wait."""
blueprint = Blueprint("session", __name__)


@blueprint.get("/login")
def login() -> str:
    return render_template("login.html", target=_target(), name="", problem=None)


@blueprint.post("/login")
def enter() -> Response:
    name, password = (request.form.get(field, "")[:LONGEST_FIELD] for field in ("name", "password"))
    mark = _checked(name, password)
    if mark is None:
        guard().refusals.note("wrong_password", client())
        problem = "Incorrect user name or password."
        page = render_template("login.html", target=_target(), name=name, problem=problem)
        return make_response(page, 403)
    log_in(name, mark)
    response = make_response(redirect(_target()))
    remember_browser(current_app, response, name)
    return response


def _checked(name: str, password: str) -> str | None:
    """The mark for a session of this person; None: the password is wrong. Aborts at a limit."""
    limits, accounts, refusals = guard().login_limits, guard().accounts, guard().refusals
    browser = known_browser(current_app, name)
    attempt = limits.reserve(name, client(), browser, time.monotonic())
    if attempt is None:
        refusals.note("login_limit", client())
        abort(429, "too many incorrect passwords from here; wait five minutes")
    mark = accounts.session_mark(name)
    try:
        admitted = accounts.admits(name, password, MOST_WAIT_S if browser else 0.0)
    except TooManyChecks as error:
        limits.give_back(attempt)
        refusals.note("login_busy", client())
        abort(503, str(error))
    if not admitted or mark is None:
        return None
    limits.give_back(attempt)
    return mark


@blueprint.post("/logout")
def logout() -> BaseResponse:
    log_out()
    flash("You are logged out.")
    return redirect(url_for("live.overview"))


@blueprint.get("/health")
def health() -> tuple[dict[str, str | float], int]:
    """For a load balancer: 200 and the time that the database took, or 503."""
    begun = time.perf_counter()
    with services().database.reading():
        return {"status": "well", "database_ms": round((time.perf_counter() - begun) * 1000, 3)}, 200


def _target() -> str:
    """The address to continue at: always one of our own pages."""
    target = request.values.get("next", "")
    return target if is_local(target) else url_for("live.overview")


@blueprint.app_context_processor
def _visitor() -> dict[str, object]:
    return {"visitor": g.get("visitor")}
