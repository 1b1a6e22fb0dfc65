"""Who may do what on the dashboard: logins, tokens, forged forms, addresses, and its command line."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from click.testing import CliRunner
from pydantic import ValidationError

from flowdb.models import CommandRow
from tests.unit.database import rows, wait_for
from tests.unit.web import NAME, PASSWORD, log_in, make, settled, token_of, told_in
from webui import cli
from webui.accounts import Accounts, AccountsError
from webui.app import render
from webui.config import WebSettings
from webui.security import FAILURES
from webui.server import yield_processors


@pytest.fixture
def told(tmp_path):
    with told_in(tmp_path, seconds=20) as story:
        yield story


@pytest.fixture
def app(told, tmp_path):
    return make(f"sqlite:///{tmp_path}/weir.db", tmp_path)


@pytest.fixture
def client(app):
    return app.test_client()


@pytest.fixture
def closed(told, tmp_path):
    """An application that nobody may read without a login."""
    return make(f"sqlite:///{tmp_path}/weir.db", tmp_path, listen="0.0.0.0:80").test_client()


def asked(tmp_path):
    return [(row.kind, row.arguments, row.asked_by) for row in rows(tmp_path / "weir.db", CommandRow)]


def test_reading_needs_a_login_unless_on_loopback(closed, client):
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
def test_who_may_read(listen, chosen, is_open):
    assert WebSettings(listen=listen, read_without_login=chosen).open_to_read is is_open


@pytest.mark.parametrize("listen", ["8080", ":8080", "host:", "host:99999", "host:x"])
def test_an_address_that_is_none(listen):
    with pytest.raises(ValidationError, match="is not ADDRESS:PORT"):
        WebSettings(listen=listen)


def test_a_name_rebound_to_loopback_is_refused(client):
    assert client.get("/", headers={"Host": "evil.example"}).status_code == 400
    assert client.get("/", headers={"Host": "127.0.0.1:8080"}).status_code == 200


def test_a_name_of_ones_own(told, tmp_path):
    app = make(f"sqlite:///{tmp_path}/weir.db", tmp_path, listen="0.0.0.0:80", hosts=(".example.org",))
    assert app.test_client().get("/login", headers={"Host": "weir.example.org"}).status_code == 200
    assert app.test_client().get("/login").status_code == 400
    assert "totals" in render(app, "/")


def test_a_wrong_password_and_too_many_of_them(client):
    token = token_of(client.get("/login").text)
    for _ in range(FAILURES):
        answer = client.post("/login", data={"name": NAME, "password": "wrong", "csrf_token": token})
        assert answer.status_code == 403
        assert "do not go together" in answer.text
    right = {"name": NAME, "password": PASSWORD, "csrf_token": token}
    answer = client.post("/login", data=right)
    assert answer.status_code == 429
    assert "wait five minutes" in answer.text


@pytest.mark.parametrize("target", ["https://evil.example/", "//evil.example", "/\\evil.example", "/a\nb"])
def test_a_login_leads_to_our_own_pages_alone(client, target):
    form = {
        "name": NAME,
        "password": PASSWORD,
        "csrf_token": token_of(client.get("/login").text),
        "next": target,
    }
    assert client.post("/login", data=form).location == "/"


def test_a_form_from_elsewhere_is_refused(client, told, tmp_path):
    log_in(client)
    answer = client.post("/commands", data={"kind": "release", "flow": told.flows[0].id})
    assert answer.status_code == 400
    assert "load it again" in answer.text
    assert client.post("/logout").status_code == 400
    assert len(asked(tmp_path)) == 1  # the story's own


def test_a_command_from_the_page_lands_in_the_table(client, told, tmp_path):
    log_in(client)
    flow = told.flows[0].id
    page = client.get(f"/flows/{flow}").text
    form = {"kind": "release", "flow": flow, "csrf_token": token_of(page), "next": f"/flows/{flow}"}
    answer = client.post("/commands", data=form)
    assert (answer.status_code, answer.location) == (303, f"/flows/{flow}")
    assert ("release", {"flow": flow}, NAME) in asked(tmp_path)
    assert "The controller&#39;s answer will stand under Actions" in client.get(f"/flows/{flow}").text


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
def test_what_a_form_asks_for(client, tmp_path, form, arguments):
    """Left out is what the controllers take by default: protection on, the configured policy."""
    log_in(client)
    client.post("/commands", data=form | {"csrf_token": token_of(client.get("/").text)})
    assert (form["kind"], arguments, NAME) in asked(tmp_path)


def test_a_late_answer_does_not_undo_a_session(client):
    """Only an answer that changes the session sends its cookie; a chart's would bring an older one back."""
    log_in(client)
    assert "Set-Cookie" not in client.get("/api/v1/totals").headers


def test_the_controller_takes_a_command_on_and_the_page_shows_its_answer(client, told, tmp_path):
    log_in(client)
    form = {"kind": "punish", "flow": 7, "csrf_token": token_of(client.get("/").text)}
    client.post("/commands", data=form)
    taken = []
    wait_for(lambda: taken.extend(told.db.take_commands()) or taken)
    told.db.command_done(taken[-1], succeeded=False, outcome="there is no flow 7")
    settled(told.db)
    assert "there is no flow 7" in client.get("/commands").text


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"kind": "explode"}, "kind"),
        ({"kind": "release"}, "flow: Field required"),
        ({"kind": "release", "flow": "x"}, "flow"),
        ({"kind": "policy", "dpid": "5", "port_no": "1", "policy": "DROP TABLE"}, "policy"),
        ({"kind": "release", "flow": "1", "more": "1"}, "more"),
    ],
)
def test_a_command_that_makes_no_sense(client, tmp_path, form, said):
    log_in(client)
    answer = client.post("/commands", data=form | {"csrf_token": token_of(client.get("/").text)})
    assert answer.status_code == 400
    assert said in answer.text
    assert len(asked(tmp_path)) == 1


def test_a_command_for_a_locked_database_is_tried_again_by_who_asked(client, told, monkeypatch):
    log_in(client)
    form = {"kind": "release", "flow": "1", "csrf_token": token_of(client.get("/flows").text)}
    path = told.url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, isolation_level=None)) as holder, monkeypatch.context() as patched:
        patched.setattr("flowdb.engine._LOCKED_S", 0.05)
        holder.execute("BEGIN EXCLUSIVE")
        answer = client.post("/commands", data=form)
    assert answer.status_code == 503
    assert "database is locked; try again" in answer.text
    assert client.post("/commands", data=form).status_code == 303


def test_nobody_acts_without_a_login(client):
    token = token_of(client.get("/login").text)
    answer = client.post("/commands", data={"kind": "release", "flow": 1, "csrf_token": token})
    assert answer.status_code == 401


def test_a_changed_password_ends_the_sessions(closed, tmp_path):
    log_in(closed)
    assert closed.get("/").status_code == 200
    Accounts(tmp_path / "accounts.json").put_person(NAME, "another long password")
    assert closed.get("/").status_code == 302


def test_a_session_ends_with_the_log_out(closed):
    log_in(closed)
    token = token_of(closed.get("/").text)
    assert closed.post("/logout", data={"csrf_token": token}).status_code == 302
    assert closed.get("/").status_code == 302


def test_tokens_read_or_act(closed, told, tmp_path):
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


def test_the_file_of_accounts_holds_no_secret_and_is_its_owners(tmp_path):
    accounts = Accounts(tmp_path / "deep" / "accounts.json")
    secret = accounts.add_token("one", "read")
    accounts.put_person("ada", PASSWORD)
    text = (tmp_path / "deep" / "accounts.json").read_text()
    assert secret not in text
    assert PASSWORD not in text
    assert "$argon2id$" in text
    assert (tmp_path / "deep" / "accounts.json").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (lambda one: one.put_person("ada", "short"), "at least 10"),
        (lambda one: one.put_person("a b", PASSWORD), "is no name here"),
        (lambda one: one.remove_person("eve"), "there is no person 'eve'"),
        (lambda one: one.remove_token("x"), "there is no token 'x'"),
        (lambda one: (one.add_token("x", "read"), one.add_token("x", "act")), "there is a token 'x' already"),
    ],
)
def test_accounts_say_what_is_wrong(tmp_path, act, said):
    with pytest.raises(AccountsError, match=said):
        act(Accounts(tmp_path / "accounts.json"))


def test_a_file_that_is_no_file_of_accounts(tmp_path):
    (tmp_path / "accounts.json").write_text("[]")
    with pytest.raises(AccountsError, match="is no file of accounts"):
        Accounts(tmp_path / "accounts.json")


@pytest.mark.parametrize(("options", "yields"), [([], True), (["--no-yields"], False)])
def test_the_dashboard_yields_unless_told_otherwise(tmp_path, monkeypatch, options, yields):
    done = []
    monkeypatch.setattr(cli, "yield_processors", lambda: done.append("yields"))
    monkeypatch.setattr(cli, "make_server", lambda *_: done.append("listens") or sys.exit())
    where = ["--accounts", str(tmp_path / "accounts.json"), "--db", str(tmp_path / "weir.db")]
    CliRunner().invoke(cli.web, [*where, *options])
    assert done == (["yields", "listens"] if yields else ["listens"])


def test_who_yields_runs_when_nobody_else_wants_to():
    """A thread of its own, for it is for good."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(yield_processors).result()
        assert thread.submit(os.sched_getscheduler, 0).result() == os.SCHED_IDLE


def test_the_command_line_makes_people_and_tokens(tmp_path):
    def run(*arguments, **more):
        return CliRunner().invoke(
            cli.accounts, [*arguments, "--file", str(tmp_path / "accounts.json")], **more
        )

    assert "nobody yet" in run("list").output
    assert run("add", "ada", input=f"{PASSWORD}\n{PASSWORD}\n").exit_code == 0
    token = json.loads(run("add-token", "one", "--scope", "act", "--json").output)
    assert Accounts(tmp_path / "accounts.json").token_named(token["token"]) == ("one", "act")
    assert run("list").output == "ada\ntoken one: may act\n"
    assert json.loads(run("list", "--json").output) == {"people": ["ada"], "tokens": {"one": "act"}}
    assert run("remove-token", "one").exit_code == 0
    assert run("remove", "eve").exit_code == 1
    assert run("remove", "ada").exit_code == 0
    assert "ADDRESS:PORT" in CliRunner().invoke(cli.web, ["--listen", "nowhere"]).output
