"""The dashboard's JSON API: addresses, parameters and bodies, with and without a database.

A request gets an answer in JSON, or a refusal that is one of REFUSALS. It never causes an internal error.
Queries take most of the time. Without a database a request ends at its first query.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote, unquote_to_bytes, urlencode

from flask.ctx import RequestContext
from flask.sessions import SecureCookieSession
from sqlalchemy import delete
from werkzeug.exceptions import HTTPException

from flowdb.engine import FlowDbError, open_engine
from flowdb.models import CommandRow
from tests.support.dashboard.application import make, told_in
from webui.access.accounts import Accounts
from webui.api import v1
from webui.api.document import PLACEHOLDER
from webui.api.endpoint import ENDPOINTS, Endpoint
from webui.parameters import BadParameters, parse
from webui.services import Services, services

ANSWERS, REFUSALS = (200, 201), (400, 401, 403, 404, 405, 415)
UNAVAILABLE = 503
ODD_TEXT = (
    *("", "0", "-1", "1", "9007199254740992", "99999999999999999999", "1e9", "nan", "true", "null"),
    *("x" * 200, "10.0.5.1", "fd00::1", "10.0.5.1 > 10.0.3.1:80", "[", "[]:", "[{", "' OR 1=1 --", "%00"),
    *("\0", "\ud7ff", "é", "../../etc/passwd", "{{7*7}}", "a" * 4, "0000000000000005", "s5", "5"),
    *("longest", "newest", "closed"),
)
ODD_VALUES = (None, True, -1, 0, 1, 2**53, 2**70, 1.5, "", "5", "longest-lived", [], {}, ["x"], {"a": 1})
METHODS = ("GET", "GET", "GET", "GET", "GET", "GET", "HEAD", "POST", "PUT", "DELETE")
KINDS = ("release", "protect", "punish", "policy", "", "drop")
MEANINGS = ("filter", "place", "addresses")
"""Properties of parameters that read a text."""
FLOWS = ("1", "2", "20")
NAMES = ("kind", "flow", "on", "window_bytes", "dpid", "port_no", "policy", "extra")


class ApiTarget:
    """The application without a server, as a client with a token that may act."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        story = self._stack.enter_context(told_in(folder, seconds=60))
        self._app = make(story.url, folder)
        token = Accounts(folder / "accounts.json").add_token("fuzz", "act")
        self._headers = {"Authorization": f"Bearer {token}"}
        self._client = self._app.test_client()
        self._flows = [str(flow.id) for flow in story.flows]
        self._engine = open_engine(story.url)
        self._stack.callback(self._engine.dispose)

    def begin(self) -> None:
        """Without the commands of the block before, so that the database does not grow."""
        with self._engine.begin() as connection:
            connection.execute(delete(CommandRow))

    def feed(self, rng: random.Random) -> bool:
        asked = made_request(rng, self._flows, self._headers)
        answer = self._client.open(
            asked.address,
            method=asked.method,
            data=asked.body,
            content_type=asked.kind,
            headers=asked.headers,
        )
        return judged(asked, answer.status_code, answer.data, ANSWERS)

    def close(self) -> None:
        self._stack.close()


class RequestsTarget:
    """The application's WSGI function without a database: all that parses and checks a request."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        self._app = make("sqlite:///nowhere.db", folder)
        real = services(self._app)
        Services(real.settings, NoDatabase(), real.hub).attach(self._app)  # type: ignore[arg-type]
        token = Accounts(folder / "accounts.json").add_token("fuzz", "act")
        self._headers = {"Authorization": f"Bearer {token}"}

    def begin(self) -> None:
        """No request leaves anything."""

    def feed(self, rng: random.Random) -> bool:
        asked = made_request(rng, FLOWS, self._headers)
        statuses: list[str] = []
        answer: Iterable[bytes] = self._app.wsgi_app(
            environment(asked), lambda status, *_: statuses.append(status)
        )
        data = b"".join(answer)
        answer.close()  # type: ignore[attr-defined]
        return judged(asked, int(statuses[0][:3]), data, (*ANSWERS, UNAVAILABLE))

    def close(self) -> None:
        self._folder.cleanup()


class ParametersTarget:
    """What reads a request's address, parameters and body, without the rest of the application."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._app = make("sqlite:///nowhere.db", Path(self._folder.name))

    def begin(self) -> None:
        """No request leaves anything."""

    def feed(self, rng: random.Random) -> bool:
        asked = made_request(rng, FLOWS, {})
        with RequestContext(self._app, environment(asked), session=SecureCookieSession()) as context:
            if context.request.routing_exception is not None:
                return False
            try:
                if context.request.method == "POST":
                    v1.asked_command()
                    return True
                parameters: Any = parse(asked.endpoint.args, context.request.args)
                for name in MEANINGS:
                    getattr(parameters, name, None)
            except (BadParameters, HTTPException):
                return False
        return True

    def close(self) -> None:
        self._folder.cleanup()


class NoDatabase:
    """In the place of webui's Database: the first query of a request raises FlowDbError."""

    url = "sqlite:///nowhere.db"

    @contextlib.contextmanager
    def reading(self) -> Iterator[NoDatabase]:
        """Itself, as a session of which nothing can be used."""
        yield self

    def now_ns(self, _session: object) -> int:
        return 1_800_000_000_000_000_000

    def __getattr__(self, name: str) -> NoReturn:
        raise FlowDbError(f"no database: {name}")


@dataclass(frozen=True)
class Asked:
    """A request. ``endpoint``: the one that it was made for; its address or method may be another one's."""

    endpoint: Endpoint
    method: str
    address: str
    body: bytes | None
    kind: str
    headers: dict[str, str]


def made_request(rng: random.Random, flows: Sequence[str], headers: dict[str, str]) -> Asked:
    """A request of which few parts are wrong. ``flows``: ids of flows; ``headers``: with a right token."""
    endpoint = rng.choice(ENDPOINTS)
    method = endpoint.method.upper() if rng.random() < 0.9 else rng.choice(METHODS)
    address = _address(rng, endpoint, flows)
    body = _body(rng, flows) if method != "GET" else None
    kind = "application/json" if rng.random() < 0.95 else "text/plain"
    chosen = headers if rng.random() < 0.95 else {"Authorization": rng.choice(ODD_TEXT[:11])}
    return Asked(endpoint, method, address, body, kind, chosen)


def judged(asked: Asked, status: int, data: bytes, answers: Sequence[int]) -> bool:
    """Whether a status is one of ``answers``. Raises AssertionError if it is not a refusal either."""
    if status not in (*answers, *REFUSALS):
        raise AssertionError(f"{status}: {asked}: {data[:200]!r}")
    if asked.method != "HEAD" and status != 405:
        json.loads(data)
    return status in answers


def environment(asked: Asked) -> dict[str, Any]:
    """A request as a WSGI server passes it on."""
    path, _, query = asked.address.partition("?")
    body = asked.body or b""
    return {
        "REQUEST_METHOD": asked.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(path).decode("latin-1"),
        "QUERY_STRING": query,
        "CONTENT_TYPE": asked.kind,
        "CONTENT_LENGTH": str(len(body)),
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "HTTP_HOST": "localhost",
        "REMOTE_ADDR": "127.0.0.1",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": io.StringIO(),
        "wsgi.multithread": False,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    } | {f"HTTP_{name.upper()}": value for name, value in asked.headers.items()}


def _address(rng: random.Random, endpoint: Endpoint, flows: Sequence[str]) -> str:
    """The endpoint's address with values for its parts and parameters, few of which are right."""

    def part(found: Any) -> str:
        right = {"dpid": "0000000000000005", "uint32": "1", "rowid": rng.choice(flows)}
        value = right.get(found[1], "incast-1")
        return quote(value if rng.random() < 0.8 else rng.choice(ODD_TEXT), safe="")

    path = "/api/v1" + PLACEHOLDER.sub(part, endpoint.rule)
    names = [*endpoint.args.model_fields, "unknown"]
    chosen = [rng.choice(names) for _ in range(rng.choice((0, 0, 1, 1, 2, 4)))]
    query = urlencode([(name, rng.choice((*ODD_TEXT, *flows))) for name in chosen])
    return f"{path}?{query}" if query else path


def _body(rng: random.Random, flows: Sequence[str]) -> bytes:
    """A command, some of whose values are wrong, or other bytes."""
    if rng.random() < 0.1:
        return rng.choice((b"", b"{", b"[]", b"\xff\xfe", b"[" * 2000, rng.randbytes(40)))
    body: dict[str, Any] = {"kind": rng.choice(KINDS), "flow": int(rng.choice(flows))}
    for _ in range(rng.choice((0, 1, 1, 3))):
        body[rng.choice(NAMES)] = rng.choice(ODD_VALUES)
    return json.dumps(body).encode()
