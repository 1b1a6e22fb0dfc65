"""`weir web`: serve the dashboard. `weir accounts`: its people and tokens."""

from __future__ import annotations

import json
import logging
import signal
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click
from flask import Flask

from flowdb.config import FlowDbSettings, database_url
from openflow_ext.settings import SettingsError, check, load, read
from webui.accounts import Accounts, AccountsError
from webui.app import create_app
from webui.config import WebSettings
from webui.server import CannotListen, end_live_pages, make_server, yield_processors

_accounts_file = click.option(
    "--file",
    "accounts",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file of accounts. Default: [web] accounts.",
)
_as_json = click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")


@click.command()
@click.option("--db", help="The flow database: a URL or an SQLite file. Default: [flowdb] url, $WEIR_DB.")
@click.option("--listen", help="ADDRESS:PORT (default 127.0.0.1:8080); port 0: a free one.")
@click.option("--accounts", type=click.Path(dir_okay=False, path_type=Path), help="The file of accounts.")
@click.option("--results", type=click.Path(file_okay=False, path_type=Path), help="The lab's result folders.")
@click.option("--yields/--no-yields", default=None, help="Other work of this machine goes first (default).")
@_as_json
def web(db: str | None, as_json: bool, **given: Any) -> None:
    """Serve the dashboard over a flow database.

    Reading needs a login unless the dashboard listens on loopback alone, or [web] read_without_login is
    true. Actions need one always: `weir accounts add NAME`.
    """
    settings = _settings(given)
    url = database_url(db) if db else load("flowdb", FlowDbSettings).database_url
    _serve(settings, url, as_json)


@click.group()
def accounts() -> None:
    """Who may log in to the dashboard, and tokens for scripts."""


@accounts.command("add")
@click.argument("name")
@click.option("--password", help="Asked for where it is not given.")
@_accounts_file
def add(name: str, password: str | None, **given: Any) -> None:
    """Add the person NAME, or change the password, which ends NAME's sessions."""
    with _plainly():
        known = _accounts(given)
        secret = password or click.prompt("Password", hide_input=True, confirmation_prompt=True)
        known.put_person(name, secret)
    click.echo(f"{name} may log in")


@accounts.command("remove")
@click.argument("name")
@_accounts_file
def remove(name: str, **given: Any) -> None:
    """Remove the person NAME; sessions of that name end."""
    with _plainly():
        _accounts(given).remove_person(name)
    click.echo(f"{name} is removed")


@accounts.command("add-token")
@click.argument("name")
@click.option("--scope", type=click.Choice(["read", "act"]), default="read", show_default=True)
@_accounts_file
@_as_json
def add_token(name: str, scope: Any, as_json: bool, **given: Any) -> None:
    """Make a token called NAME and print it; it is not kept and cannot be shown again."""
    with _plainly():
        secret = _accounts(given).add_token(name, scope)
    click.echo(json.dumps({"name": name, "scope": scope, "token": secret}) if as_json else secret)


@accounts.command("remove-token")
@click.argument("name")
@_accounts_file
def remove_token(name: str, **given: Any) -> None:
    """Remove the token called NAME."""
    with _plainly():
        _accounts(given).remove_token(name)
    click.echo(f"the token {name} is removed")


@accounts.command("list")
@_accounts_file
@_as_json
def list_accounts(as_json: bool, **given: Any) -> None:
    """Who may log in, and the tokens' names and what they may do."""
    with _plainly():
        known = _accounts(given)
        found = {"people": known.people, "tokens": known.tokens}
    lines = [*found["people"], *(f"token {name}: may {scope}" for name, scope in known.tokens.items())]
    click.echo(json.dumps(found) if as_json else "\n".join(lines) or "nobody yet: weir accounts add NAME")


def _accounts(given: dict[str, Any]) -> Accounts:
    return Accounts(_settings(given).accounts)


class _plainly:  # noqa: N801 - reads as a statement
    """Errors of ours as one line and exit code 1."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: Any, error: BaseException | None, _trace: Any) -> None:
        if isinstance(error, AccountsError | SettingsError | CannotListen):
            raise click.ClickException(str(error)) from error


def _settings(given: dict[str, Any]) -> WebSettings:
    chosen = {name: value for name, value in given.items() if value is not None}
    with _plainly():
        document = read()
        section = document.get("web", {})
        merged = section | chosen if isinstance(section, dict) else section
        return check("web", WebSettings, document | {"web": merged}, "weir web")


def _serve(settings: WebSettings, url: str, as_json: bool) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    if settings.yields:
        yield_processors()
    with _plainly():
        app = create_app(settings, url)
        server = make_server(app, settings)
    where = f"http://{server.effective_host}:{server.effective_port}/"
    click.echo(json.dumps({"event": "listening", "url": where}) if as_json else f"Weir's dashboard: {where}")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, partial(_end, app))
    server.run()
    server.close()


def _end(app: Flask, _number: int, _frame: FrameType | None) -> NoReturn:
    """End the live pages, then the server; other exceptions than this waitress may log and go on after."""
    end_live_pages(app)
    raise SystemExit
