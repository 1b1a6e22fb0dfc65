"""The application: ``create_app``."""

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
from werkzeug.routing import BaseConverter, IntegerConverter, RequestRedirect
from werkzeug.urls import uri_to_iri

from flowdb.engine import FlowDbError
from webui import errors, text
from webui.accounts import Accounts, AccountsError
from webui.api import document, metrics, v1
from webui.args import BadArgs
from webui.config import WebSettings
from webui.database import Database
from webui.live import Hub, NoSuchPage
from webui.pages import actions, experiments, live_pages, session, stream
from webui.parts import KEY, Parts
from webui.security import Attempts, protect

MOST_BODY = 64 * 1024
CHARTS = "plotly.min.js"


class _Dpid(BaseConverter):
    """A datapath id: 16 hexadecimal digits."""

    regex = "[0-9a-f]{16}"

    def to_python(self, value: str) -> int:
        return int(value, 16)

    def to_url(self, value: int | str) -> str:
        return value if isinstance(value, str) else f"{value:016x}"


class _RowId(IntegerConverter):
    """A row's id, as large as a JSON number can be and stay exact."""

    def __init__(self, map_: object) -> None:
        super().__init__(map_, max=2**53 - 1)  # type: ignore[arg-type]


class _Uint32(IntegerConverter):
    """A port's number."""

    def __init__(self, map_: object) -> None:
        super().__init__(map_, max=2**32 - 1)  # type: ignore[arg-type]


def create_app(settings: WebSettings, database_url: str) -> Flask:
    """The dashboard over the database at ``database_url``. Raises AccountsError."""
    app = Flask("webui")
    app.url_map.converters |= {"dpid": _Dpid, "rowid": _RowId, "uint32": _Uint32}
    accounts = Accounts(settings.accounts)
    app.config.update(
        SECRET_KEY=accounts.secret_key,
        SESSION_COOKIE_NAME="weir",
        SESSION_COOKIE_SAMESITE="Lax",
        SESSION_COOKIE_SECURE=settings.secure_cookies,
        SESSION_REFRESH_EACH_REQUEST=False,  # an answer that is late would undo what a newer one set
        PERMANENT_SESSION_LIFETIME=timedelta(hours=settings.session_hours),
        MAX_CONTENT_LENGTH=MOST_BODY,
        TRUSTED_HOSTS=settings.trusted_hosts,
        SEND_FILE_MAX_AGE_DEFAULT=3600,
        WTF_CSRF_CHECK_DEFAULT=False,
        WTF_CSRF_TIME_LIMIT=None,
    )
    database = Database(database_url, settings.query_limit_s)
    troubles = (FlowDbError, BadArgs)
    hub = Hub(lambda address: render(app, address), troubles, settings.poll_s, settings.most_viewers)
    app.extensions[KEY] = Parts(settings, database, accounts, hub, Attempts())
    protect(app, accounts, settings.open_to_read)
    text.install(app)
    errors.install(app, (FlowDbError, SQLAlchemyError, AccountsError))
    for part in (session, actions, experiments, live_pages, stream, v1, metrics, document):
        if part.blueprint.name not in app.blueprints:
            app.register_blueprint(part.blueprint)
    app.add_url_rule(f"/static/{CHARTS}", "static_charts", charts)
    return app


def render(app: Flask, address: str) -> Mapping[str, str]:
    """The regions of the live page at an address. Raises NoSuchPage, BadArgs and FlowDbError."""
    path, _, query = address.partition("?")
    host = (app.config["TRUSTED_HOSTS"] or ["localhost"])[0].lstrip(".")
    with app.test_request_context(path, base_url=f"http://{host}", query_string=query):
        try:
            endpoint, named = app.url_map.bind("").match(uri_to_iri(path), method="GET")
        except (HTTPException, RequestRedirect) as error:
            raise NoSuchPage(address) from error
        page = live_pages.PAGES.get(endpoint)
        if page is None:
            raise NoSuchPage(address)
        return live_pages.regions_of(page, MultiDict(request.args), **named)


def charts() -> Response:
    """The charts' library, from its Python package: 5 MB, sent as 1.5."""
    answer = Response(_charts(), mimetype="text/javascript", headers={"Cache-Control": "max-age=86400"})
    answer.headers["Content-Encoding"] = "gzip"
    return answer


@cache
def _charts() -> bytes:
    library = importlib.resources.files("plotly") / "package_data" / CHARTS
    return gzip.compress(library.read_bytes(), compresslevel=6)
