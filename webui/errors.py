"""What goes wrong, as a page or as JSON: what it was and what to do, and never a traceback."""

from __future__ import annotations

from flask import Flask, Response, current_app, render_template, request
from flask_wtf.csrf import CSRFError
from werkzeug.exceptions import HTTPException, InternalServerError, SecurityError

from webui.args import BadArgs
from webui.database import TooSlow
from webui.security import is_for_scripts
from webui.views import Problem

ADVICE = {
    400: "Correct the address or the form, or begin at the overview.",
    401: "Log in and try again.",
    403: "Use an account or a token that may do this.",
    404: "Begin at the overview, or search for the flow by its address.",
    405: "Use the dashboard's own links and forms.",
    413: "Send less.",
    429: "Wait a little.",
    500: "This is a fault of the dashboard; its log says more. The controllers go on without it.",
    503: "The dashboard tries again with the next request; the controllers go on without it.",
}
RETRY_S = "5"


def install(app: Flask, unavailable: tuple[type[Exception], ...]) -> None:
    """Put the handlers in; ``unavailable``: errors that mean 503, whose message may be shown."""

    @app.errorhandler(CSRFError)
    def _forged(_error: CSRFError) -> Response:
        return answer(400, "Not sent by this page", "The form is too old or from elsewhere; load it again.")

    @app.errorhandler(BadArgs)
    def _bad(error: BadArgs) -> Response:
        return answer(400, "Not understood", str(error))

    @app.errorhandler(HTTPException)
    def _http(error: HTTPException) -> Response:
        if isinstance(error, SecurityError):  # no page of ours can be named to such a visitor
            text = "This dashboard is not known by that name; add it to [web] hosts."
            return Response(text, 400, mimetype="text/plain")
        made = answer(error.code or 500, error.name, error.description or "")
        for name, value in error.get_headers():
            if name not in ("Content-Type", "Content-Length"):
                made.headers[name] = value
        return made

    def _unavailable(error: Exception) -> Response:
        current_app.logger.warning("%s: %s", request.path, error)
        title = "The question took too long" if isinstance(error, TooSlow) else "The database cannot be read"
        made = answer(503, title, str(error))
        made.headers["Retry-After"] = RETRY_S
        return made

    for kind in unavailable:
        app.register_error_handler(kind, _unavailable)

    @app.errorhandler(InternalServerError)
    def _fault(_error: InternalServerError) -> Response:
        return answer(500, "A fault", "Something went wrong that nobody foresaw.")


def answer(status: int, title: str, detail: str) -> Response:
    """The problem as who asked can read it."""
    if is_for_scripts():
        problem = Problem(status=status, title=title, detail=detail)
        return Response(problem.model_dump_json(), status, mimetype="application/json")
    page = render_template(
        "error.html", status=status, title=title, detail=detail, advice=ADVICE.get(status, "")
    )
    return Response(page, status, mimetype="text/html")
