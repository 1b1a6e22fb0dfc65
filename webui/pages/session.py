"""Log in, log out, and the health check."""

from __future__ import annotations

import time

from flask import Blueprint, abort, flash, g, redirect, render_template, request, session, url_for
from werkzeug.wrappers import Response

from webui.access.security import is_local, log_in
from webui.services import services

LONGEST_FIELD = 1024
blueprint = Blueprint("session", __name__)


@blueprint.get("/login")
def login() -> str:
    return render_template("login.html", target=_target(), name="", problem=None)


@blueprint.post("/login")
def enter() -> Response | tuple[str, int]:
    name, password = (request.form.get(field, "")[:LONGEST_FIELD] for field in ("name", "password"))
    attempts, accounts, address = services().attempts, services().accounts, request.remote_addr or ""
    if attempts.must_wait(name, address):
        abort(429, "too many incorrect passwords for this user name; wait five minutes")
    mark = accounts.session_mark(name)
    if not accounts.admits(name, password) or mark is None:
        attempts.failed(name, address)
        problem = "Incorrect user name or password."
        return render_template("login.html", target=_target(), name=name, problem=problem), 403
    log_in(name, mark)
    return redirect(_target())


@blueprint.post("/logout")
def logout() -> Response:
    session.clear()
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
