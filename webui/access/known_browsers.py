"""The cookie of a browser in which a person has logged in before. It admits to nothing.

It only gives the person login attempts of their own, which nobody else can use up.
"""

from __future__ import annotations

import secrets

from flask import Flask, Response, request
from itsdangerous import BadSignature, URLSafeTimedSerializer

COOKIE = "weir_browser"
KEPT_S = 90 * 24 * 3600


def known_browser(app: Flask, name: str) -> str | None:
    """The mark of the browser that sends the current request, if the person has logged in there before."""
    try:
        owner, mark = _signer(app).loads(request.cookies.get(COOKIE, ""), max_age=KEPT_S)
    except (BadSignature, ValueError, TypeError):
        return None
    return mark if owner == name else None


def remember_browser(app: Flask, response: Response, name: str) -> None:
    """Let the answer of a login mark the browser as the person's."""
    mark = known_browser(app, name) or secrets.token_urlsafe(12)
    response.set_cookie(
        COOKIE,
        _signer(app).dumps([name, mark]),
        max_age=KEPT_S,
        path="/login",
        secure=app.config["SESSION_COOKIE_SECURE"],
        httponly=True,
        samesite="Strict",
    )


def _signer(app: Flask) -> URLSafeTimedSerializer:
    return URLSafeTimedSerializer(app.config["SECRET_KEY"], salt="weir browser")
