"""The Flask application: ``create_app``."""

from __future__ import annotations

import gzip
import importlib.resources
from collections.abc import Mapping
from datetime import timedelta
from functools import cache

from flask import Flask, Response, request
from sqlalchemy.exc import SQLAlchemyError
from werkzeug.datastructures import MultiDict
from werkzeug.exceptions import HTTPException
from werkzeug.routing import BaseConverter, IntegerConverter, Map, RequestRedirect
from werkzeug.urls import uri_to_iri

from flowdb.engine import FlowDbError
from webui import errors, template_filters
from webui.access.accounts import Accounts, AccountsError
from webui.access.forwarding import ForwardedAddresses
from webui.access.guard import Guard
from webui.access.security import protect
from webui.access.sessions import Sessions
from webui.api import api_blueprints
from webui.config import WebSettings
from webui.database import Database
from webui.live import page as live
from webui.live import stream
from webui.live_hub import Hub, NoSuchPage
from webui.pages import page_blueprints
from webui.parameters import BadParameters
from webui.services import Services

MOST_BODY_BYTES = 64 * 1024
CHARTS = "plotly.min.js"


class _Dpid(BaseConverter):
    """A datapath id: 16 hexadecimal digits."""

    regex = "[0-9a-f]{16}"

    def to_python(self, value: str) -> int:
        return int(value, 16)

    def to_url(self, value: int | str) -> str:
        return value if isinstance(value, str) else f"{value:016x}"


class _RowId(IntegerConverter):
    """A row's id, at most the largest integer that a JSON number holds exactly."""

    def __init__(self, map_: Map) -> None:
        super().__init__(map_, max=2**53 - 1)


class _Uint32(IntegerConverter):
    """A port's number."""

    def __init__(self, map_: Map) -> None:
        super().__init__(map_, max=2**32 - 1)


def create_app(settings: WebSettings, database_url: str) -> Flask:
    """The dashboard of the database at ``database_url``. Raises AccountsError."""
    app = Flask("webui")
    app.url_map.converters |= {"dpid": _Dpid, "rowid": _RowId, "uint32": _Uint32}
    accounts = Accounts(settings.accounts)
    app.config.update(
        SECRET_KEY=accounts.secret_key,
        SESSION_COOKIE_NAME="weir",
        SESSION_COOKIE_SAMESITE="Lax",
        SESSION_COOKIE_SECURE=settings.secure_cookies,
        SESSION_REFRESH_EACH_REQUEST=False,  # a late answer would overwrite the cookie of a newer one
        PERMANENT_SESSION_LIFETIME=timedelta(hours=settings.session_hours),
        MAX_CONTENT_LENGTH=MOST_BODY_BYTES,
        TRUSTED_HOSTS=settings.trusted_hosts,
        SEND_FILE_MAX_AGE_DEFAULT=3600,
        WTF_CSRF_CHECK_DEFAULT=False,
        WTF_CSRF_TIME_LIMIT=None,
    )
    database = Database(database_url, settings.query_limit_s)
    shown_errors = (FlowDbError, BadParameters)
    hub = Hub(
        lambda address: render(app, address),
        shown_errors,
        settings.poll_s,
        settings.most_viewers,
        settings.most_viewers_per_client,
    )
    Services(settings, database, hub).attach(app)
    Guard(settings, accounts, Sessions(settings.session_hours * 3600)).attach(app)
    protect(app)
    template_filters.install(app)
    errors.install(app, (FlowDbError, SQLAlchemyError, AccountsError))
    for blueprint in (*page_blueprints(), live.blueprint, stream.blueprint, *api_blueprints()):
        app.register_blueprint(blueprint)
    app.add_url_rule(f"/static/{CHARTS}", "static_charts", charts)
    forwarded = ForwardedAddresses(app.wsgi_app, settings.proxies)
    app.wsgi_app = forwarded  # type: ignore[method-assign]  # as Flask documents it
    return app


def render(app: Flask, address: str) -> Mapping[str, str]:
    """The regions of the live page at an address. Raises NoSuchPage, BadParameters and FlowDbError."""
    path, _, query = address.partition("?")
    host = (app.config["TRUSTED_HOSTS"] or ["localhost"])[0].lstrip(".")
    with app.test_request_context(path, base_url=f"http://{host}", query_string=query):
        try:
            endpoint, named = app.url_map.bind("").match(uri_to_iri(path), method="GET")
        except (HTTPException, RequestRedirect) as error:
            raise NoSuchPage(address) from error
        page = live.PAGES.get(endpoint)
        if page is None:
            raise NoSuchPage(address)
        return live.rendered_regions(page, MultiDict(request.args), **named)


def charts() -> Response:
    """The chart library from its Python package, compressed: it is large."""
    answer = Response(_charts(), mimetype="text/javascript", headers={"Cache-Control": "max-age=86400"})
    answer.headers["Content-Encoding"] = "gzip"
    return answer


@cache
def _charts() -> bytes:
    library = importlib.resources.files("plotly") / "package_data" / CHARTS
    return gzip.compress(library.read_bytes(), compresslevel=6)
