"""The dashboard's JSON API over a database with a made-up incast: addresses, parameters and bodies.

A request gets an answer in JSON, or a refusal that is one of REFUSALS. It never causes an internal error.
"""

from __future__ import annotations

import contextlib
import json
import random
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from sqlalchemy import delete

from flowdb.engine import open_engine
from flowdb.models import CommandRow
from tests.support.dashboard.application import make, told_in
from webui.access.accounts import Accounts
from webui.api.document import PLACEHOLDER
from webui.api.endpoint import ENDPOINTS, Endpoint

ANSWERS, REFUSALS = (200, 201), (400, 401, 403, 404, 405, 415)
ODD_TEXT = (
    *("", "0", "-1", "1", "9007199254740992", "99999999999999999999", "1e9", "nan", "true", "null"),
    *("x" * 200, "10.0.5.1", "fd00::1", "10.0.5.1 > 10.0.3.1:80", "[", "[]:", "[{", "' OR 1=1 --", "%00"),
    *("\0", "\ud7ff", "é", "../../etc/passwd", "{{7*7}}", "a" * 4, "0000000000000005", "s5", "5"),
    *("longest", "newest", "closed"),
)
ODD_VALUES = (None, True, -1, 0, 1, 2**53, 2**70, 1.5, "", "5", "longest-lived", [], {}, ["x"], {"a": 1})
METHODS = ("GET", "GET", "GET", "GET", "GET", "GET", "HEAD", "POST", "PUT", "DELETE")
KINDS = ("release", "protect", "punish", "policy", "", "drop")
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
        endpoint = rng.choice(ENDPOINTS)
        method = endpoint.method.upper() if rng.random() < 0.9 else rng.choice(METHODS)
        address = self._address(rng, endpoint)
        body = self._body(rng) if method != "GET" else None
        kind = "application/json" if rng.random() < 0.95 else "text/plain"
        headers = self._headers if rng.random() < 0.95 else {"Authorization": rng.choice(ODD_TEXT[:11])}
        answer = self._client.open(address, method=method, data=body, content_type=kind, headers=headers)
        if answer.status_code not in (*ANSWERS, *REFUSALS):
            raise AssertionError(f"{answer.status_code}: {method} {address} {body!r}: {answer.text[:200]}")
        if method != "HEAD" and answer.status_code != 405:
            json.loads(answer.data)
        return answer.status_code in ANSWERS

    def _address(self, rng: random.Random, endpoint: Endpoint) -> str:
        """The endpoint's address with values for its parts and parameters, few of which are right."""

        def part(found: Any) -> str:
            right = {"dpid": "0000000000000005", "uint32": "1", "rowid": rng.choice(self._flows)}
            value = right.get(found[1], "incast-1")
            return quote(value if rng.random() < 0.8 else rng.choice(ODD_TEXT), safe="")

        path = "/api/v1" + PLACEHOLDER.sub(part, endpoint.rule)
        names = [*endpoint.args.model_fields, "unknown"]
        chosen = [rng.choice(names) for _ in range(rng.choice((0, 0, 1, 1, 2, 4)))]
        query = urlencode([(name, rng.choice((*ODD_TEXT, *self._flows))) for name in chosen])
        return f"{path}?{query}" if query else path

    def _body(self, rng: random.Random) -> bytes:
        """A command, some of whose values are wrong, or other bytes."""
        if rng.random() < 0.1:
            return rng.choice((b"", b"{", b"[]", b"\xff\xfe", b"[" * 2000, rng.randbytes(40)))
        body: dict[str, Any] = {"kind": rng.choice(KINDS), "flow": int(rng.choice(self._flows))}
        for _ in range(rng.choice((0, 1, 1, 3))):
            body[rng.choice(NAMES)] = rng.choice(ODD_VALUES)
        return json.dumps(body).encode()

    def close(self) -> None:
        self._stack.close()
