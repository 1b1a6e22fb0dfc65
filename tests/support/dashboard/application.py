"""The dashboard's application over a database with a made-up incast, for unit tests."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from flask import Flask
from flask.testing import FlaskClient

from flowdb.db import FlowDb
from tests.support.dashboard.incast_story import Story, tell
from tests.support.database.rows import put_tables, wait_written
from webui.access.accounts import Accounts
from webui.app import create_app
from webui.config import WebSettings

NAME, PASSWORD = "ada", "correct horse battery"
PORT = "/ports/0000000000000005/1"
EXPERIMENT = "/experiments/incast-1"
PAGES = ("/", "/topology", "/ports", PORT, "/flows", "/commands", "/settings", "/experiments", EXPERIMENT)
"""Every page of Story's network except those of flows."""


def make(url: str, folder: Path, **settings: object) -> Flask:
    """An application with one account."""
    accounts = folder / "accounts.json"
    if not accounts.exists():
        accounts.write_bytes(_accounts())
        accounts.chmod(0o600)
    app = create_app(WebSettings(accounts=accounts, results=folder / "results", **settings), url)
    app.testing = False
    return app


@cache
def _accounts() -> bytes:
    """A file with one account, made once: hashing a password is slow by design."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "accounts.json"
        Accounts(file).put_person(NAME, PASSWORD)
        return file.read_bytes()


def put_experiment(results: Path) -> Path:
    """The result folder of ``EXPERIMENT``: one case under two schemes, one run of them void; no report."""
    place = results / EXPERIMENT.rpartition("/")[2]
    place.mkdir(parents=True)
    case = {"workers": 40, "size_bytes": 32_000, "ideal_ms": 107.0, "title": "40 x 32 KB", "drops": 3}
    rows = [
        case | {"scheme": scheme, "timeouts": 0, "qct_ms": {"p50": p50, "p99": 2 * p50}, "valid": p50 < 300}
        for scheme, p50 in (("plain", 364.0), ("sccp", 117.0))
    ]
    (place / "metadata.json").write_text('{"started": "2026-11-21T12:00:00+0000"}')
    (place / "summary.json").write_text(json.dumps(rows))
    return place


@contextmanager
def told_in(folder: Path, seconds: int) -> Iterator[Story]:
    """A database with an incast in this many seconds of history, and its story."""
    put_tables(folder / "weir.db")
    url = f"sqlite:///{folder}/weir.db"
    db = FlowDb(url)
    story = tell(db, seconds=seconds)
    story.url = url
    wait_written(db)
    yield story
    db.close()


def token_of(page: str) -> str:
    """The CSRF token in a page's forms."""
    found = re.search(r'name="csrf_token" value="([^"]+)"', page)
    assert found, "no form on the page"
    return found[1]


def log_in(client: FlaskClient) -> None:
    form = {"name": NAME, "password": PASSWORD, "csrf_token": token_of(client.get("/login").text)}
    assert client.post("/login", data=form).status_code == 302
