"""`weir web`: serve the dashboard. `weir accounts`: its users and tokens."""

from __future__ import annotations

import json
import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, TextIO

import click
from flask import Flask

from flowdb.config import FlowDbSettings, database_url_of_argument
from webui.access.accounts import Accounts, AccountsError
from webui.app import create_app
from webui.config import WebSettings
from webui.server import CannotListen, end_live_pages, make_server, urls_of, yield_processors
from weir_base import tables
from weir_base.settings import SettingsError, check, load, read

_COLUMNS = (
    tables.Column("name", align="left", fold_at=30),
    tables.Column("kind", align="left"),
    tables.Column("scope", align="left"),
)
_accounts_file = click.option(
    "--file",
    "accounts",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The accounts file. Default: [web] accounts.",
)
_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.command()
@click.option(
    "--db", help="The flow database: a URL or an SQLite file. Default: $WEIR_DB, then [flowdb] url."
)
@click.option("--listen", help="ADDRESS:PORT (default 127.0.0.1:8080); port 0 chooses a free port.")
@click.option("--accounts", type=click.Path(dir_okay=False, path_type=Path), help="The accounts file.")
@click.option(
    "--results", type=click.Path(file_okay=False, path_type=Path), help="The folder of the lab's results."
)
@click.option(
    "--yields/--no-yields", default=None, help="Leave the CPU to all other programs (default: yes)."
)
@_as_json
def web(db: str | None, as_json: bool, **given: Any) -> None:
    """Serve the dashboard of a flow database.

    Reading needs a login, except if the dashboard listens on a loopback address only, or if [web]
    read_without_login is true. Actions always need a login. Create one: `weir accounts add NAME`.
    """
    settings = _settings(given)
    with _reporting_errors():
        url = database_url_of_argument(db) if db else load("flowdb", FlowDbSettings).database_url
    _serve(settings, url, as_json)


@click.group()
def accounts() -> None:
    """Manage the dashboard's users, and tokens for scripts."""


@accounts.command("add")
@click.argument("name")
@click.option(
    "--password-file",
    type=click.File(),
    help="Read the password from the first line of a file; - is standard input. Default: ask for it.",
)
@_accounts_file
def add(name: str, password_file: TextIO | None, **given: Any) -> None:
    """Add the user NAME, or change a password.

    A new password ends the sessions of NAME.
    """
    with _reporting_errors():
        known = _accounts(given)
        if password_file is not None:
            secret = password_file.readline().rstrip("\r\n")
        else:
            secret = click.prompt("Password", hide_input=True, confirmation_prompt=True)
        known.put_person(name, secret)
    click.echo(f"user {name} may log in")


@accounts.command("remove")
@click.argument("name")
@_accounts_file
def remove(name: str, **given: Any) -> None:
    """Remove the user NAME and end the user's sessions."""
    with _reporting_errors():
        _accounts(given).remove_person(name)
    click.echo(f"user {name} removed")


@accounts.command("add-token")
@click.argument("name")
@click.option(
    "--scope",
    type=click.Choice(["read", "act"]),
    default="read",
    show_default=True,
    help="read: only read. act: also give commands.",
)
@_accounts_file
@_as_json
def add_token(name: str, scope: Any, as_json: bool, **given: Any) -> None:
    """Create the token NAME and print its secret.

    The secret is not stored and cannot be shown again.
    """
    with _reporting_errors():
        secret = _accounts(given).add_token(name, scope)
    click.echo(json.dumps({"name": name, "scope": scope, "token": secret}) if as_json else secret)


@accounts.command("remove-token")
@click.argument("name")
@_accounts_file
def remove_token(name: str, **given: Any) -> None:
    """Remove the token NAME."""
    with _reporting_errors():
        _accounts(given).remove_token(name)
    click.echo(f"token {name} removed")


@accounts.command("list")
@_accounts_file
@_as_json
def list_accounts(as_json: bool, **given: Any) -> None:
    """List the users, and the tokens with their scopes."""
    with _reporting_errors():
        known = _accounts(given)
        found = {"people": known.people, "tokens": known.tokens}
    if as_json:
        click.echo(json.dumps(found))
        return
    rows = [{"name": name, "kind": "user", "scope": "act"} for name in known.people]
    rows += [{"name": name, "kind": "token", "scope": scope} for name, scope in known.tokens.items()]
    tables.show(_COLUMNS, rows, empty="no accounts; add a user: weir accounts add NAME")


def _accounts(given: dict[str, Any]) -> Accounts:
    return Accounts(_settings(given).accounts)


@contextmanager
def _reporting_errors() -> Iterator[None]:
    """Report an error in one line, with exit status 1."""
    try:
        yield
    except (AccountsError, SettingsError, CannotListen) as error:
        raise click.ClickException(str(error)) from error


def _settings(given: dict[str, Any]) -> WebSettings:
    chosen = {name: value for name, value in given.items() if value is not None}
    with _reporting_errors():
        document = read()
        section = document.get("web", {})
        merged = section | chosen if isinstance(section, dict) else section
        return check("web", WebSettings, document | {"web": merged}, "weir web")


def _serve(settings: WebSettings, url: str, as_json: bool) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    if settings.yields:
        yield_processors()
    with _reporting_errors():
        app = create_app(settings, url)
        server = make_server(app, settings)
    first, *others = urls_of(server)
    where = " and ".join((first, *others))
    click.echo(json.dumps({"event": "listening", "url": first}) if as_json else f"dashboard: {where}")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, partial(_end, app))
    server.run()
    server.close()


def _end(app: Flask, _number: int, _frame: FrameType | None) -> NoReturn:
    """End the live pages, then the server. Waitress may log any other exception and continue."""
    end_live_pages(app)
    raise SystemExit
