"""The checks of every request: sessions of people, tokens of scripts, forged forms; security headers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from flask import Flask, Response, abort, g, redirect, request, session, url_for
from flask_wtf.csrf import CSRFProtect
from werkzeug.wrappers import Response as BaseResponse

from webui.access.forwarding import WAS_FORWARDED
from webui.access.guard import Guard, guard
from webui.access.login_limits import client_of

PUBLIC = {"static", "static_charts", "session.login", "session.enter", "session.health"}
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self';"
    " font-src 'self'; frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
REPORT_POLICY = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'"
)
csrf = CSRFProtect()


@dataclass(frozen=True, slots=True)
class Visitor:
    """The sender of a request. ``name``: None if unknown. ``is_script``: it sent a token."""

    name: str | None
    may_act: bool
    is_script: bool = False


def protect(app: Flask) -> None:
    """Install the checks of every request and the headers of every answer."""
    csrf.init_app(app)

    @app.before_request
    def _check() -> BaseResponse | None:
        g.visitor = _visitor(guard())
        is_public = request.endpoint in PUBLIC or request.endpoint is None
        if not is_public and g.visitor.name is None and not _open_to_read():
            if is_for_scripts():
                abort(401, "log in, or send the header Authorization: Bearer TOKEN")
            return redirect(url_for("session.login", next=request.full_path.rstrip("?")))
        if _can_be_forged(g.visitor):
            csrf.protect()
        return None

    @app.after_request
    def _headers(response: Response) -> Response:
        response.headers.setdefault("Content-Security-Policy", CONTENT_POLICY)
        response.headers.setdefault("X-Content-Type-Options", "nosniff")
        response.headers.setdefault("Referrer-Policy", "same-origin")
        response.headers.setdefault("Cross-Origin-Opener-Policy", "same-origin")
        if request.endpoint != "static":
            response.headers.setdefault("Cache-Control", "no-store")
        if response.status_code == 401:
            response.headers["WWW-Authenticate"] = "Bearer"
        return response


def require_actor() -> str:
    """The name of a visitor who may act; aborts with 401 or 403 for others."""
    visitor: Visitor = g.visitor
    if visitor.name is None:
        abort(401, "log in first: this needs an account, or a token with the scope act")
    if not visitor.may_act:
        abort(
            403, "this token may only read; create one that may act: weir accounts add-token NAME --scope act"
        )
    return visitor.name


def is_for_scripts() -> bool:
    """Whether a program reads the answer, instead of a browser that shows a page."""
    return request.path.startswith("/api/") or request.path in ("/metrics", "/live")


def client() -> str:
    """The client that sent the request: an address, or an IPv6 network."""
    return client_of(request.remote_addr or "")


def log_in(name: str, mark: str) -> None:
    log_out()
    session["id"] = guard().sessions.begin(name, mark, time.monotonic())
    session.permanent = True


def log_out() -> None:
    """End the visitor's session, on the server too: a copy of its cookie is worthless."""
    guard().sessions.end(session.get("id"))
    session.clear()


def admission() -> Callable[[], bool]:
    """A function that says whether the visitor of this request may still read, for answers that go on."""
    if g.visitor.name is None:
        return lambda: True
    known, secret, session_id = guard(), _bearer_token(), session.get("id")
    if g.visitor.is_script:
        return lambda: known.accounts.token_named(secret) is not None
    return lambda: _person(known, session_id) is not None


def is_local(target: str) -> bool:
    """Whether an address to continue at is one of our own pages."""
    return target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()


def _can_be_forged(visitor: Visitor) -> bool:
    """Whether another site could make a browser send this request in the visitor's name."""
    changes = request.endpoint is not None and request.method not in ("GET", "HEAD", "OPTIONS")
    is_anonymous_script = is_for_scripts() and visitor.name is None
    return changes and not visitor.is_script and not is_anonymous_script


def _open_to_read() -> bool:
    """Whether this request may read without a login. By default a request through a proxy may not."""
    settings = guard().settings
    was_forwarded = bool(request.environ.get(WAS_FORWARDED))
    return settings.open_to_read and (settings.read_without_login is True or not was_forwarded)


def _visitor(of: Guard) -> Visitor:
    if request.headers.get("Authorization", "").partition(" ")[0]:
        known = of.accounts.token_named(_bearer_token())
        if known is None:
            of.refusals.note("unknown_token", client())
            abort(401, "unknown token; create one: weir accounts add-token NAME")
        return Visitor(f"token {known[0]}", known[1] == "act", is_script=True)
    name = _person(of, session.get("id"))
    return Visitor(name, may_act=name is not None)


def _bearer_token() -> str:
    """The token in the request; empty if there is none, or the scheme is another one."""
    scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else ""


def _person(of: Guard, session_id: str | None) -> str | None:
    """The name of a session's person. A changed password and a removed person end the session."""
    found = of.sessions.person(session_id, time.monotonic())
    return found[0] if found is not None and of.accounts.session_mark(found[0]) == found[1] else None
