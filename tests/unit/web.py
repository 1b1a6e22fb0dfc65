"""The dashboard's application over a database in which an incast was told, for unit tests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flask import Flask
from flask.testing import FlaskClient

from flowdb.db import FlowDb
from tests.story import Story, tell
from tests.unit.database import wait_for
from webui.accounts import Accounts
from webui.app import create_app
from webui.config import WebSettings

NAME, PASSWORD = "ada", "correct horse battery"


def make(url: str, folder: Path, **settings: object) -> Flask:
    """An application with a person who may log in."""
    accounts = folder / "accounts.json"
    if not accounts.exists():
        Accounts(accounts).put_person(NAME, PASSWORD)
    app = create_app(WebSettings(accounts=accounts, results=folder / "results", **settings), url)
    app.testing = False
    return app


@contextmanager
def told_in(folder: Path, seconds: int) -> Iterator[Story]:
    """A database, and what was told there: an incast in this many seconds of history."""
    url = f"sqlite:///{folder}/weir.db"
    db = FlowDb(url)
    story = tell(db, seconds=seconds)
    story.url = url
    settled(db)
    yield story
    db.close()


def token_of(page: str) -> str:
    """The token that a page's forms carry against forgery."""
    found = re.search(r'name="csrf_token" value="([^"]+)"', page)
    assert found, "no form on the page"
    return found[1]


def log_in(client: FlaskClient) -> None:
    form = {"name": NAME, "password": PASSWORD, "csrf_token": token_of(client.get("/login").text)}
    assert client.post("/login", data=form).status_code == 302


def settled(db: FlowDb) -> None:
    """Wait until all that was told is in the database."""
    wait_for(lambda: not db.counters.pending)
