"""The checks of every request: sessions of people, tokens of scripts, forged forms; security headers."""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock

from flask import Flask, Response, abort, current_app, g, redirect, request, session, url_for
from flask_wtf.csrf import CSRFProtect
from werkzeug.wrappers import Response as BaseResponse

from webui.access.accounts import Accounts

PUBLIC = {"static", "static_charts", "session.login", "session.enter", "session.health"}
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self';"
    " font-src 'self'; frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
REPORT_POLICY = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'"
)
MAX_FAILURES = 5
FORGET_AFTER_S = 300.0
MAX_REMEMBERED = 10_000
csrf = CSRFProtect()


@dataclass(frozen=True, slots=True)
class Visitor:
    """The sender of a request. ``name``: None if unknown. ``is_script``: it sent a token."""

    name: str | None
    may_act: bool
    is_script: bool = False


class Attempts:
    """Failed logins by user name and address. After a few, further logins have to wait."""

    def __init__(self) -> None:
        self._failures: OrderedDict[tuple[str, str], list[float]] = OrderedDict()
        self._lock = Lock()

    def must_wait(self, name: str, address: str) -> bool:
        with self._lock:
            recent = [
                at for at in self._failures.get((name, address), []) if at > time.monotonic() - FORGET_AFTER_S
            ]
            return len(recent) >= MAX_FAILURES

    def failed(self, name: str, address: str) -> None:
        with self._lock:
            times = self._failures.setdefault((name, address), [])
            times[:] = [*times[1 - MAX_FAILURES :], time.monotonic()]
            self._failures.move_to_end((name, address))
            while len(self._failures) > MAX_REMEMBERED:
                self._failures.popitem(last=False)


def protect(app: Flask, accounts: Accounts, open_to_read: bool) -> None:
    """Install the checks of every request and the headers of every answer."""
    csrf.init_app(app)

    @app.before_request
    def _check() -> BaseResponse | None:
        g.visitor = _visitor(accounts)
        if request.endpoint in PUBLIC or request.endpoint is None:
            readable = True
        else:
            readable = open_to_read or g.visitor.name is not None
        if not readable:
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


def log_in(name: str, mark: str) -> None:
    session.clear()
    session.update(name=name, mark=mark)
    session.permanent = True


def is_local(target: str) -> bool:
    """Whether an address to continue at is one of our own pages."""
    return target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()


def _can_be_forged(visitor: Visitor) -> bool:
    """Whether another site could make a browser send this request in the visitor's name."""
    changes = request.endpoint is not None and request.method not in ("GET", "HEAD", "OPTIONS")
    is_anonymous_script = is_for_scripts() and visitor.name is None
    return changes and not visitor.is_script and not is_anonymous_script


def _visitor(accounts: Accounts) -> Visitor:
    scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
    if scheme:
        known = accounts.token_named(secret.strip()) if scheme.lower() == "bearer" else None
        if known is None:
            current_app.logger.warning("unknown token from %s", request.remote_addr)
            abort(401, "unknown token; create one: weir accounts add-token NAME")
        return Visitor(f"token {known[0]}", known[1] == "act", is_script=True)
    name = session.get("name")
    if name is not None and session.get("mark") == accounts.session_mark(name):
        return Visitor(name, may_act=True)
    return Visitor(None, may_act=False)
