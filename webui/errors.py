"""Error answers, as a page or as JSON: what went wrong and what to do, never a traceback."""

from __future__ import annotations

from flask import Flask, Response, current_app, render_template, request
from flask_wtf.csrf import CSRFError
from werkzeug.exceptions import HTTPException, InternalServerError, SecurityError

from flowdb.database_url import hide_password
from webui.access.security import is_for_scripts
from webui.database import TooSlow
from webui.parameters import BadParameters
from webui.services import services
from webui.views import Problem

ADVICE = {
    400: "Correct the address or the form, or start at the overview.",
    401: "Log in and try again.",
    403: "Use an account or a token with the required permission.",
    404: "Start at the overview, or search for the flow by its address.",
    405: "Use the dashboard's own links and forms.",
    413: "Send a smaller request.",
    429: "Wait some minutes.",
    500: "This is an error in the dashboard; its log has the details. The controllers are not affected.",
    503: "The dashboard tries again with the next request. The controllers are not affected.",
}
RETRY_S = "5"


def install(app: Flask, unavailable: tuple[type[Exception], ...]) -> None:
    """Install the error handlers. ``unavailable``: errors that are answered with 503 and their message."""

    @app.errorhandler(CSRFError)
    def _forged(_error: CSRFError) -> Response:
        return answer(
            400, "Invalid form", "The form is too old, or another site sent it. Load the page again."
        )

    @app.errorhandler(BadParameters)
    def _bad(error: BadParameters) -> Response:
        return answer(400, "Invalid request", str(error))

    @app.errorhandler(HTTPException)
    def _http(error: HTTPException) -> Response:
        if isinstance(error, SecurityError):  # our pages have no address under this host name
            text = "This host name is not allowed; add it to [web] hosts."
            return Response(text, 400, mimetype="text/plain")
        made = answer(error.code or 500, error.name, error.description or "")
        for name, value in error.get_headers():
            if name not in ("Content-Type", "Content-Length"):
                made.headers[name] = value
        return made

    def _unavailable(error: Exception) -> Response:
        detail = hide_password(str(error), services().database.url)
        current_app.logger.warning("%s: %s", request.path, detail)
        title = "The query took too long" if isinstance(error, TooSlow) else "The database cannot be read"
        made = answer(503, title, detail)
        made.headers["Retry-After"] = RETRY_S
        return made

    for kind in unavailable:
        app.register_error_handler(kind, _unavailable)

    @app.errorhandler(InternalServerError)
    def _fault(_error: InternalServerError) -> Response:
        return answer(500, "Internal error", "The dashboard failed to answer this request.")


def answer(status: int, title: str, detail: str) -> Response:
    """The problem as JSON for programs, and as a page for browsers."""
    if is_for_scripts():
        problem = Problem(status=status, title=title, detail=detail)
        return Response(problem.model_dump_json(), status, mimetype="application/json")
    page = render_template(
        "error.html", status=status, title=title, detail=detail, advice=ADVICE.get(status, "")
    )
    return Response(page, status, mimetype="text/html")
