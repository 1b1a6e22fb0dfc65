"""Logins under attack: their limits, the bound of password hashes, sessions, addresses behind proxies."""

from __future__ import annotations

import ipaddress
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from argon2.exceptions import VerifyMismatchError

from tests.support.dashboard.application import NAME, PASSWORD, log_in, make, token_of, told_in
from tests.support.waiting import wait_until
from webui.access import accounts as accounts_module
from webui.access import refusals as refusals_module
from webui.access.accounts import MOST_HASHES, MOST_QUEUED, Accounts, TooManyChecks
from webui.access.forwarding import client_address
from webui.access.guard import guard
from webui.access.login_limits import (
    MOST_FOR_NAME,
    MOST_OF_CLIENT,
    MOST_OF_CLIENT_FOR_NAME,
    MOST_REMEMBERED,
    WINDOW_S,
    LoginLimits,
    client_of,
)
from webui.access.refusals import Refusals
from webui.access.sessions import MOST_OF_PERSON, Sessions
from webui.services import services


class Hasher:
    """In place of argon2: knows ``PASSWORD``, and records how many hashes are made at a time."""

    def __init__(self):
        self.now = self.most = self.made = 0
        self.lock = threading.Lock()
        self.may_end = threading.Event()

    def verify(self, _hashed, password):
        with self.lock:
            self.now += 1
            self.made += 1
            self.most = max(self.most, self.now)
        self.may_end.wait(10)
        with self.lock:
            self.now -= 1
        if password != PASSWORD:
            raise VerifyMismatchError
        return True


@pytest.fixture
def hasher(monkeypatch):
    made = Hasher()
    monkeypatch.setattr(accounts_module, "_HASHER", made)
    yield made
    made.may_end.set()


@pytest.fixture
def quick(hasher):
    hasher.may_end.set()
    return hasher


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with told_in(tmp_path_factory.mktemp("logins"), seconds=5) as story:
        yield story.url


@pytest.fixture
def app(url, tmp_path):
    return make(url, tmp_path, listen="0.0.0.0:80", proxies=["192.0.2.0/24"])


def attempt(client, password, address="198.51.100.1", name=NAME):
    through = {"environ_base": {"REMOTE_ADDR": address}}
    form = {"name": name, "password": password, "csrf_token": token_of(client.get("/login", **through).text)}
    return client.post("/login", data=form, **through)


def test_wrong_passwords_are_refused_and_then_delayed(app, quick):
    client = app.test_client()
    for _ in range(MOST_OF_CLIENT_FOR_NAME):
        answer = attempt(client, "wrong")
        assert (answer.status_code, "Incorrect user name or password." in answer.text) == (403, True)
    answer = attempt(client, PASSWORD)
    assert (answer.status_code, "wait five minutes" in answer.text) == (429, True)
    assert quick.made == MOST_OF_CLIENT_FOR_NAME
    assert attempt(app.test_client(), PASSWORD, "198.51.100.2").status_code == 302
    assert guard(app).refusals.counts["login_limit"] == 1
    assert guard(app).refusals.counts["wrong_password"] == MOST_OF_CLIENT_FOR_NAME


def test_attempts_at_the_same_time_pass_no_more_than_the_limit(app, hasher):
    """All of them are sent before the first password is checked."""

    def guess(_):
        return attempt(app.test_client(), "wrong").status_code

    with ThreadPoolExecutor(20) as guessers:
        answers = guessers.map(guess, range(20))
        wait_until(lambda: guard(app).refusals.counts["login_limit"], "15 refused", lambda n: n == 15)
        hasher.may_end.set()
        assert sorted(answers) == [403] * 5 + [429] * 15
    assert hasher.made == MOST_OF_CLIENT_FOR_NAME


def test_at_most_two_passwords_are_hashed_at_a_time(app, hasher):
    known = guard(app).accounts
    places = MOST_HASHES + MOST_QUEUED
    with ThreadPoolExecutor(places) as checkers:
        checks = [checkers.submit(known.admits, NAME, "wrong") for _ in range(places)]
        wait_until(lambda: accounts_module._CHECKS._value, "the queue is full", lambda free: free == 0)
        with pytest.raises(TooManyChecks):
            known.admits(NAME, PASSWORD)
        assert attempt(app.test_client(), PASSWORD).status_code == 503
        patient = checkers.submit(known.admits, NAME, PASSWORD, 10.0)
        hasher.may_end.set()
        assert not any(check.result() for check in checks)
        assert patient.result()
    assert hasher.most == MOST_HASHES


def test_a_login_that_could_not_be_checked_does_not_count(app, hasher, monkeypatch):
    monkeypatch.setattr(accounts_module, "_CHECKS", threading.BoundedSemaphore(1))
    accounts_module._CHECKS.acquire()
    for _ in range(MOST_OF_CLIENT_FOR_NAME + 1):
        assert attempt(app.test_client(), PASSWORD).status_code == 503
    accounts_module._CHECKS.release()
    hasher.may_end.set()
    assert attempt(app.test_client(), PASSWORD).status_code == 302


def test_strangers_cannot_lock_a_name(app, quick):
    at_home, person = app.test_client(), "203.0.113.7"
    assert attempt(at_home, PASSWORD, person).status_code == 302
    for number in range(MOST_FOR_NAME + 10):
        attempt(app.test_client(), "wrong", f"198.51.100.{number}")
    assert attempt(app.test_client(), PASSWORD, "203.0.113.8").status_code == 302, "a client without attempts"
    for _ in range(MOST_OF_CLIENT_FOR_NAME - 1):
        assert attempt(at_home, "mistyped", person).status_code == 403
    assert attempt(at_home, PASSWORD, person).status_code == 302, "a browser that the person used before"


def test_others_at_the_same_address_cannot_lock_out_a_known_browser(app, quick):
    known = app.test_client()
    assert attempt(known, PASSWORD).status_code == 302
    for number in range(MOST_OF_CLIENT + 5):
        attempt(app.test_client(), "wrong", name=f"user{number % 10}")
    assert attempt(app.test_client(), PASSWORD).status_code == 429
    assert attempt(known, PASSWORD).status_code == 302


def test_a_known_browser_is_known_for_its_own_person_only(app, quick):
    client = app.test_client()
    attempt(client, PASSWORD)
    for _ in range(MOST_OF_CLIENT_FOR_NAME):
        assert attempt(client, "wrong", name="eve").status_code == 403
    assert attempt(client, "wrong", name="eve").status_code == 429
    client.set_cookie("weir_browser", "forged", path="/login")
    for _ in range(MOST_OF_CLIENT_FOR_NAME):
        attempt(client, "wrong")
    assert attempt(client, "wrong").status_code == 429


def test_a_busy_name_leaves_a_client_one_attempt():
    limits = LoginLimits()
    for number in range(MOST_FOR_NAME):
        assert limits.reserve("ada", f"client {number}", None, 0.0)
    assert limits.reserve("ada", "another", None, 1.0)
    assert not limits.reserve("ada", "another", None, 2.0)
    assert limits.reserve("bob", "another", None, 2.0)
    assert limits.reserve("ada", "another", None, 2.0 + WINDOW_S)


def test_a_client_has_a_limit_over_all_names():
    limits = LoginLimits()
    made = [limits.reserve(f"user {number}", "one", None, 0.0) for number in range(MOST_OF_CLIENT + 1)]
    assert [one is None for one in made] == [False] * MOST_OF_CLIENT + [True]
    limits.give_back(made[0])
    assert limits.reserve("ada", "one", None, 1.0)
    assert limits.reserve("ada", "two", None, 1.0)


def test_the_memory_of_attempts_is_bounded():
    limits = LoginLimits()
    for number in range(MOST_REMEMBERED):
        limits.reserve(f"user {number}", f"client {number}", None, 0.0)
    assert len(limits._times) == MOST_REMEMBERED


@pytest.mark.parametrize(
    ("address", "client"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff:1", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_the_addresses_of_an_ipv6_network_are_one_client(address, client):
    assert client_of(address) == client


PROXIES = [ipaddress.ip_network("192.0.2.0/24"), ipaddress.ip_network("2001:db8::/32")]


@pytest.mark.parametrize(
    ("peer", "forwarded_for", "address"),
    [
        ("198.51.100.9", "203.0.113.1", "198.51.100.9"),
        ("192.0.2.1", "203.0.113.1", "203.0.113.1"),
        ("192.0.2.1", "10.0.0.1, 203.0.113.1", "203.0.113.1"),
        ("192.0.2.1", "10.0.0.1, 203.0.113.1, 192.0.2.2", "203.0.113.1"),
        ("192.0.2.1", "", "192.0.2.1"),
        ("192.0.2.1", "unknown", "192.0.2.1"),
        ("192.0.2.1", "10.0.0.1, <script>, 192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.1", "203.0.113.1", "203.0.113.1"),
        ("2001:db8::1", "[2001:470::5]", "2001:470::5"),
        ("", "203.0.113.1", ""),
    ],
)
def test_only_named_proxies_are_believed(peer, forwarded_for, address):
    assert client_address(peer, forwarded_for, PROXIES) == address


def test_clients_behind_a_named_proxy_are_limited_one_by_one(app, quick):
    def through(proxy, client):
        sent = {"environ_base": {"REMOTE_ADDR": proxy}, "headers": {"X-Forwarded-For": client}}
        browser = app.test_client()
        token = token_of(browser.get("/login", **sent).text)
        form = {"name": NAME, "password": "wrong", "csrf_token": token}
        return browser.post("/login", data=form, **sent).status_code

    assert [through("192.0.2.1", "203.0.113.1") for _ in range(6)] == [403] * 5 + [429]
    assert through("192.0.2.1", "203.0.113.2") == 403
    unnamed = [through("198.51.100.1", f"203.0.113.{number}") for number in range(10, 16)]
    assert unnamed == [403] * 5 + [429], "a client cannot choose its address"


def test_a_copied_cookie_is_dead_after_the_logout(app):
    client, thief = app.test_client(), app.test_client()
    log_in(client)
    copied = client.get_cookie("weir").value
    thief.set_cookie("weir", copied)
    assert thief.get("/").status_code == 200
    token = token_of(client.get("/").text)
    assert client.post("/logout", data={"csrf_token": token}).status_code == 302
    assert client.get("/").status_code == 302
    thief.set_cookie("weir", copied)
    assert thief.get("/").status_code == 302


def test_a_second_login_in_a_browser_ends_the_first_session(app):
    client = app.test_client()
    log_in(client)
    copied = client.get_cookie("weir").value
    log_in(client)
    assert client.get("/").status_code == 200
    client.set_cookie("weir", copied)
    assert client.get("/").status_code == 302


def test_a_logout_ends_the_stream_of_a_live_page(app):
    client = app.test_client()
    log_in(client)
    events = client.get("/live?page=/", buffered=False).iter_encoded()
    assert [next(events)[:6] for _ in range(2)] == [b"retry:", b"event:"]
    client.post("/logout", data={"csrf_token": token_of(client.get("/").text)})
    page = services(app).hub._watched["/"]
    with services(app).hub._lock:
        page.update({"totals": "changed"}, "")
        page.changed.notify_all()
    assert list(events) == []


def test_a_removed_token_ends_its_stream(app, tmp_path):
    known = Accounts(tmp_path / "accounts.json")
    bearer = {"Authorization": f"Bearer {known.add_token('grafana', 'read')}"}
    events = app.test_client().get("/live?page=/", headers=bearer, buffered=False).iter_encoded()
    assert next(events).startswith(b"retry:")
    known.remove_token("grafana")
    assert list(events) == []


def test_sessions_end_by_time_and_by_number():
    sessions = Sessions(lasts_s=60.0)
    first = sessions.begin("ada", "mark", 0.0)
    assert sessions.person(first, 59.0) == ("ada", "mark")
    assert sessions.person(first, 60.0) is None
    again = [sessions.begin("ada", "mark", 61.0) for _ in range(MOST_OF_PERSON + 1)]
    other = sessions.begin("eve", "mark", 61.0)
    assert len(sessions._open) == MOST_OF_PERSON + 1
    assert sessions.person(again[0], 62.0) is None
    assert sessions.person(again[1], 62.0)
    assert sessions.person(other, 62.0) == ("eve", "mark")


def test_streams_of_one_client_are_limited(url, tmp_path):
    app = make(url, tmp_path, most_viewers_per_client=2)

    def watch(address):
        where = {"environ_base": {"REMOTE_ADDR": address}}
        return app.test_client().get("/live?page=/", buffered=False, **where)

    streams = [watch("127.0.0.1"), watch("127.0.0.1")]
    refused = watch("127.0.0.1")
    assert (refused.status_code, "most_viewers_per_client" in refused.json["detail"]) == (429, True)
    assert watch("127.0.0.2").status_code == 200
    streams[0].close()
    assert watch("127.0.0.1").status_code == 200
    assert guard(app).refusals.counts["stream_limit"] == 1
    assert 'weir_web_refused_total{reason="stream_limit"} 1.0' in app.test_client().get("/metrics").text
    services(app).hub.close()


def test_refusals_are_logged_at_a_bounded_rate(monkeypatch, caplog):
    refused, now = Refusals(), [time.monotonic()]
    monkeypatch.setattr(refusals_module.time, "monotonic", lambda: now[0])
    for _ in range(1000):
        refused.note("unknown_token", "192.0.2.1")
    now[0] += 11
    refused.note("unknown_token", "192.0.2.2")
    assert [record.message for record in caplog.records] == [
        "refused unknown token: 1 more from 192.0.2.1",
        "refused unknown token: 1000 more from 192.0.2.2",
    ]
    assert refused.counts["unknown_token"] == 1001
