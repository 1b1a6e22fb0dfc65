"""Access to the dashboard: logins, tokens, forged forms, host names, and `weir accounts`."""

from __future__ import annotations

import json
import os
import re
import socket
import sqlite3
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from click.testing import CliRunner
from pydantic import ValidationError
from sqlalchemy.exc import InterfaceError

from flowdb.models import CommandRow
from tests.support.dashboard.application import NAME, PASSWORD, log_in, make, token_of
from tests.support.database.rows import rows, wait_written
from tests.support.waiting import wait_until
from webui import cli
from webui.access.accounts import Accounts, AccountsError
from webui.app import render
from webui.config import WebSettings
from webui.database import Database
from webui.server import make_server, urls_of, yield_processors


@pytest.fixture
def app(recorded, tmp_path):
    return make(f"sqlite:///{tmp_path}/weir.db", tmp_path)


@pytest.fixture
def client(app):
    return app.test_client()


@pytest.fixture
def closed(recorded, tmp_path):
    """A client of an application in which reading needs a login."""
    return make(f"sqlite:///{tmp_path}/weir.db", tmp_path, listen="0.0.0.0:80").test_client()


def asked(tmp_path):
    return [(row.kind, row.arguments, row.asked_by) for row in rows(tmp_path / "weir.db", CommandRow)]


def test_reading_needs_a_login_except_on_loopback(closed, client):
    assert client.get("/").status_code == 200
    answer = closed.get("/flows?q=10.0.3.1")
    assert answer.status_code == 302
    assert answer.location == "/login?next=/flows?q%3D10.0.3.1"
    for address in ("/api/v1/flows", "/metrics", "/live?page=/"):
        answer = closed.get(address)
        assert (answer.status_code, answer.json["status"]) == (401, 401)
        assert answer.headers["WWW-Authenticate"] == "Bearer"
    log_in(closed)
    assert closed.get("/").status_code == 200


@pytest.mark.parametrize(
    ("listen", "chosen", "is_open"),
    [
        ("127.0.0.1:1", None, True),
        ("[::1]:1", None, True),
        ("localhost:1", None, True),
        ("0.0.0.0:1", None, False),
        ("10.0.0.1:1", True, True),
        ("127.0.0.1:1", False, False),
    ],
)
def test_reading_is_open_by_default_only_on_loopback(listen, chosen, is_open):
    assert WebSettings(listen=listen, read_without_login=chosen).open_to_read is is_open


@pytest.mark.parametrize(
    "reached", [{"hosts": ["weir.example.org"]}, {"secure_cookies": True}, {"proxies": ["127.0.0.1"]}]
)
def test_reading_needs_a_login_if_the_settings_speak_of_a_proxy(reached):
    assert not WebSettings(**reached).open_to_read
    assert WebSettings(**reached, read_without_login=True).open_to_read


@pytest.mark.parametrize(
    "trace",
    [
        *("Forwarded", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Server", "X-Forwarded-Ssl"),
        *("X-Real-IP", "X-Client-IP", "True-Client-IP", "CF-Connecting-IP", "Via"),
    ],
)
def test_reading_through_an_unnamed_proxy_needs_a_login(client, recorded, tmp_path, trace):
    assert client.get("/api/v1/totals", headers={trace: "192.0.2.1"}).status_code == 401
    chosen = make(recorded.url, tmp_path, read_without_login=True).test_client()
    assert chosen.get("/api/v1/totals", headers={trace: "192.0.2.1"}).status_code == 200


def test_a_drivers_message_on_a_page_and_in_the_log_has_no_password(tmp_path, monkeypatch, caplog):
    def fail(_database):
        raise InterfaceError("SELECT 1", {}, Exception("refused: user=ada password=pa55-word"))

    monkeypatch.setattr(Database, "reading", fail)
    client = make("postgresql://ada:pa55-word@127.0.0.1:1/weir", tmp_path).test_client()
    answer = client.get("/api/v1/totals")
    assert answer.status_code == 503
    assert "refused: user=ada password=***" in answer.json["detail"]
    assert "pa55-word" not in answer.text + client.get("/").text + caplog.text


@pytest.mark.parametrize("listen", ["8080", ":8080", "host:", "host:99999", "host:x"])
def test_an_invalid_listen_address_is_refused(listen):
    with pytest.raises(ValidationError, match="is not ADDRESS:PORT"):
        WebSettings(listen=listen)


def test_a_host_name_with_two_addresses_has_two_urls(app, monkeypatch):
    """Debian's installer gives localhost both."""
    monkeypatch.setattr("webui.server.gc.freeze", lambda: None)  # would last beyond this test
    find, names = socket.getaddrinfo, ("127.0.0.1", "::1")
    monkeypatch.setattr(
        "socket.getaddrinfo",
        lambda host, *more: [
            one for name in names for one in find(name if host == "localhost" else host, *more)
        ],
    )
    with closing(make_server(app, WebSettings(listen="localhost:0"))) as server:
        first, second = urls_of(server)
    assert re.fullmatch(r"http://(localhost|127\.0\.0\.1):\d+/", first)
    assert re.fullmatch(r"http://(localhost|ip6-localhost|\[::1\]):\d+/", second)


def test_an_unknown_host_name_is_refused_on_loopback(client):
    assert client.get("/", headers={"Host": "evil.example"}).status_code == 400
    assert client.get("/", headers={"Host": "127.0.0.1:8080"}).status_code == 200


def test_configured_host_names_are_accepted(recorded, tmp_path):
    app = make(f"sqlite:///{tmp_path}/weir.db", tmp_path, listen="0.0.0.0:80", hosts=(".example.org",))
    assert app.test_client().get("/login", headers={"Host": "weir.example.org"}).status_code == 200
    assert app.test_client().get("/login").status_code == 400
    assert "totals" in render(app, "/")


@pytest.mark.parametrize("target", ["https://evil.example/", "//evil.example", "/\\evil.example", "/a\nb"])
def test_a_login_redirects_only_to_own_pages(client, target):
    form = {
        "name": NAME,
        "password": PASSWORD,
        "csrf_token": token_of(client.get("/login").text),
        "next": target,
    }
    assert client.post("/login", data=form).location == "/"


def test_a_form_without_csrf_token_is_refused(client, recorded, tmp_path):
    log_in(client)
    answer = client.post("/commands", data={"kind": "release", "flow": recorded.flows[0].id})
    assert answer.status_code == 400
    assert "Load the page again" in answer.text
    assert client.post("/logout").status_code == 400
    assert len(asked(tmp_path)) == 1  # the command of the recorded incast


def test_a_form_inserts_its_command(client, recorded, tmp_path):
    log_in(client)
    flow = recorded.flows[0].id
    page = client.get(f"/flows/{flow}").text
    form = {"kind": "release", "flow": flow, "csrf_token": token_of(page), "next": f"/flows/{flow}"}
    answer = client.post("/commands", data=form)
    assert (answer.status_code, answer.location) == (303, f"/flows/{flow}")
    assert ("release", {"flow": flow}, NAME) in asked(tmp_path)
    assert "The page Actions shows the controller&#39;s answer" in client.get(f"/flows/{flow}").text


@pytest.mark.parametrize(
    ("form", "arguments"),
    [
        ({"kind": "protect", "flow": "7"}, {"flow": 7}),
        ({"kind": "protect", "flow": "7", "on": "false"}, {"flow": 7, "on": False}),
        (
            {"kind": "policy", "dpid": "5", "port_no": "1", "policy": ""},
            {"dpid": "0000000000000005", "port_no": 1},
        ),
    ],
)
def test_a_form_omits_default_arguments(client, tmp_path, form, arguments):
    """Defaults are left out of the arguments: protection on, the configured policy."""
    log_in(client)
    client.post("/commands", data=form | {"csrf_token": token_of(client.get("/").text)})
    assert (form["kind"], arguments, NAME) in asked(tmp_path)


def test_an_answer_that_changes_no_session_sets_no_cookie(client):
    """Only an answer that changes the session sets the cookie; a late answer would restore an older one."""
    log_in(client)
    assert "Set-Cookie" not in client.get("/api/v1/totals").headers


def test_the_page_shows_the_outcome_of_a_command(client, recorded, tmp_path):
    log_in(client)
    form = {"kind": "punish", "flow": 7, "csrf_token": token_of(client.get("/").text)}
    client.post("/commands", data=form)
    taken = []
    taken += wait_until(recorded.db.take_commands, "the command is in the database")
    recorded.db.command_done(taken[-1], succeeded=False, outcome="there is no flow 7")
    wait_written(recorded.db)
    assert "there is no flow 7" in client.get("/commands").text


@pytest.mark.parametrize(
    ("form", "phrase"),
    [
        ({"kind": "explode"}, "kind"),
        ({"kind": "release"}, "flow: Field required"),
        ({"kind": "release", "flow": "x"}, "flow"),
        ({"kind": "policy", "dpid": "5", "port_no": "1", "policy": "DROP TABLE"}, "policy"),
        ({"kind": "release", "flow": "1", "more": "1"}, "more"),
    ],
)
def test_an_invalid_command_is_refused(client, tmp_path, form, phrase):
    log_in(client)
    answer = client.post("/commands", data=form | {"csrf_token": token_of(client.get("/").text)})
    assert answer.status_code == 400
    assert phrase in answer.text
    assert len(asked(tmp_path)) == 1


def test_a_command_to_a_locked_database_can_be_repeated(client, recorded, monkeypatch):
    log_in(client)
    form = {"kind": "release", "flow": "1", "csrf_token": token_of(client.get("/flows").text)}
    path = recorded.url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, isolation_level=None)) as holder, monkeypatch.context() as patched:
        patched.setattr("flowdb.engine._LOCKED_S", 0.05)
        holder.execute("BEGIN EXCLUSIVE")
        answer = client.post("/commands", data=form)
    assert answer.status_code == 503
    assert "database is locked; try again" in answer.text
    assert client.post("/commands", data=form).status_code == 303


def test_a_command_needs_a_login(client):
    token = token_of(client.get("/login").text)
    answer = client.post("/commands", data={"kind": "release", "flow": 1, "csrf_token": token})
    assert answer.status_code == 401


def test_a_changed_password_ends_sessions(closed, tmp_path):
    log_in(closed)
    assert closed.get("/").status_code == 200
    Accounts(tmp_path / "accounts.json").put_person(NAME, "another long password")
    assert closed.get("/").status_code == 302


def test_a_token_has_the_rights_of_its_scope(closed, recorded, tmp_path):
    accounts = Accounts(tmp_path / "accounts.json")
    reader = {"Authorization": f"Bearer {accounts.add_token('grafana', 'read')}"}
    actor = {"Authorization": f"Bearer {accounts.add_token('night-job', 'act')}"}
    body = {"kind": "policy", "dpid": "5", "port_no": 1, "policy": "priority"}
    assert closed.get("/metrics", headers=reader).status_code == 200
    refused = closed.post("/api/v1/commands", json=body, headers=reader)
    assert (refused.status_code, "may only read" in refused.json["detail"]) == (403, True)
    made = closed.post("/api/v1/commands", json=body, headers=actor)
    assert (made.status_code, made.json["asked_by"]) == (201, "token night-job")
    assert made.json["arguments"] == {"dpid": f"{5:016x}", "port_no": 1, "policy": "priority"}
    accounts.remove_token("night-job")
    assert closed.post("/api/v1/commands", json=body, headers=actor).status_code == 401
    assert closed.get("/", headers={"Authorization": "Basic YTpi"}).status_code == 401


def test_the_accounts_file_has_no_secrets_and_is_private(tmp_path):
    accounts = Accounts(tmp_path / "deep" / "accounts.json")
    secret = accounts.add_token("one", "read")
    accounts.put_person("ada", PASSWORD)
    text = (tmp_path / "deep" / "accounts.json").read_text()
    assert secret not in text
    assert PASSWORD not in text
    assert "$argon2id$" in text
    assert (tmp_path / "deep" / "accounts.json").stat().st_mode & 0o077 == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to other users")
def test_root_leaves_the_accounts_file_to_its_owner(tmp_path):
    """The service has a user of its own, and an administrator runs `weir accounts` as root."""
    service, other = 12345, 54321
    os.chown(tmp_path, service, service)
    file = tmp_path / "accounts.json"
    Accounts(file).put_person("ada", PASSWORD)
    assert (file.stat().st_uid, file.stat().st_gid, file.stat().st_mode & 0o777) == (service, service, 0o600)
    os.chown(file, other, other)
    Accounts(file).add_token("grafana", "read")
    assert (file.stat().st_uid, file.stat().st_gid, file.stat().st_mode & 0o777) == (other, other, 0o600)


@pytest.mark.parametrize(
    ("act", "phrase"),
    [
        (lambda one: one.put_person("ada", "short"), "at least 10"),
        (lambda one: one.put_person("a b", PASSWORD), "is not a valid name"),
        (lambda one: one.remove_person("eve"), "unknown user 'eve'"),
        (lambda one: one.remove_token("x"), "unknown token 'x'"),
        (lambda one: (one.add_token("x", "read"), one.add_token("x", "act")), "a token 'x' already exists"),
    ],
)
def test_account_errors_name_the_cause(tmp_path, act, phrase):
    with pytest.raises(AccountsError, match=phrase):
        act(Accounts(tmp_path / "accounts.json"))


def test_a_removed_accounts_file_admits_nobody(tmp_path):
    file = tmp_path / "accounts.json"
    Accounts(file).put_person("bob", "a long password")
    secret = Accounts(file).add_token("reader", "act")
    serving = Accounts(file)
    key = serving.secret_key
    assert serving.token_named(secret) == ("reader", "act")
    file.unlink()
    assert serving.token_named(secret) is None
    assert (serving.people, serving.session_mark("bob")) == ([], None)
    assert serving.secret_key == key, "the application signs by it until it ends"


def test_an_invalid_accounts_file_is_refused(tmp_path):
    (tmp_path / "accounts.json").write_text("[]")
    with pytest.raises(AccountsError, match=r"cannot be read \(Not a directory\); run weir accounts as root"):
        Accounts(tmp_path / "accounts.json" / "below.json")
    with pytest.raises(AccountsError, match="is not an accounts file"):
        Accounts(tmp_path / "accounts.json")


@pytest.mark.parametrize(("options", "yields"), [([], True), (["--no-yields"], False)])
def test_the_dashboard_yields_the_cpu_by_default(tmp_path, monkeypatch, options, yields):
    done = []
    monkeypatch.setattr(cli, "yield_processors", lambda: done.append("yields"))
    monkeypatch.setattr(cli, "make_server", lambda *_: done.append("listens") or sys.exit())
    where = ["--accounts", str(tmp_path / "accounts.json"), "--db", str(tmp_path / "weir.db")]
    CliRunner().invoke(cli.web, [*where, *options])
    assert done == (["yields", "listens"] if yields else ["listens"])


def test_yielding_uses_sched_idle():
    """In a thread of its own, because the policy cannot be set back."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(yield_processors).result()
        assert thread.submit(os.sched_getscheduler, 0).result() == os.SCHED_IDLE


def test_weir_accounts_manages_users_and_tokens(tmp_path):
    def run(*arguments, **more):
        return CliRunner().invoke(
            cli.accounts, [*arguments, "--file", str(tmp_path / "accounts.json")], **more
        )

    assert "no accounts" in run("list").output
    assert run("add", "ada", input=f"{PASSWORD}\n{PASSWORD}\n").exit_code == 0
    assert run("add", "ada", "--password", PASSWORD).exit_code == 2, "other users see arguments"
    (tmp_path / "password").write_text(f"{PASSWORD} of a file\n")
    assert run("add", "ada", "--password-file", str(tmp_path / "password")).exit_code == 0
    assert Accounts(tmp_path / "accounts.json").admits("ada", f"{PASSWORD} of a file")
    assert run("add", "ada", "--password-file", "-", input=f"{PASSWORD}\n").exit_code == 0
    assert Accounts(tmp_path / "accounts.json").admits("ada", PASSWORD)
    token = json.loads(run("add-token", "one", "--scope", "act", "--json").output)
    assert Accounts(tmp_path / "accounts.json").token_named(token["token"]) == ("one", "act")
    assert [line.split() for line in run("list").output.splitlines()[1:]] == [
        ["ada", "user", "act"],
        ["one", "token", "act"],
    ]
    assert json.loads(run("list", "--json").output) == {"people": ["ada"], "tokens": {"one": "act"}}
    assert run("remove-token", "one").exit_code == 0
    assert run("remove", "eve").exit_code == 1
    assert run("remove", "ada").exit_code == 0
    assert "ADDRESS:PORT" in CliRunner().invoke(cli.web, ["--listen", "nowhere"]).output
