"""`weir transports follow` without root: impossible answers, a controller that is lost, TLS and tokens."""

from __future__ import annotations

import ipaddress
import json
import ssl
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.support.agent.certificates import certify
from transports import cli, follow_cli
from transports.bottlenecks import MOST_ASKED, Answer, Bottleneck, Controller, ControllerError, checked
from transports.follower import MOST_FOLLOWED, Follower
from transports.pacing_paths import Address, FlowsFrom, Network, PacingPath

TO, OTHER = (ipaddress.ip_address(text) for text in ("10.0.0.1", "10.0.0.2"))
ITEM: dict[str, Any] = {
    "to": "10.0.0.1",
    "port": {"dpid": "0000000000000001", "port_no": 1, "name": "s1-eth1"},
    "age_s": 0.25,
    "n_i": 60,
    "capacity_bps": 100_000_000,
    "buffer_bytes": 150_000,
    "allowance_bytes": 7_500,
}
FOUND = Bottleneck(60, 100_000_000, 150_000, 7_500, 0.25)
TOKEN = "wtok-1"  # noqa: S105 - of a server in this file
OWN = b"cookie-1"


class MemoryPaths:
    """The paths of the namespace OWN in memory. Another namespace has a destination too."""

    def __init__(self, destinations: Sequence[Address] = (TO,)) -> None:
        self.sent_to = list(destinations)
        self.held: dict[Network, PacingPath] = {}

    def destinations(self) -> Mapping[bytes, Sequence[Address]]:
        return {OWN: self.sent_to, b"another": [ipaddress.ip_address("10.0.0.77")]}

    def paths(self) -> Mapping[bytes, Mapping[Network, PacingPath]]:
        return {OWN: dict(self.held)}

    def put(self, namespace: bytes, network: Network, path: PacingPath) -> None:
        assert namespace == OWN
        path.check()
        self.held[network] = path

    def remove(self, namespace: bytes, network: Network) -> None:
        assert namespace == OWN
        del self.held[network]


def network(address: Address) -> Network:
    return ipaddress.ip_network(address)


def follower(
    answer: Answer | ControllerError, host: MemoryPaths, always: Sequence[Address] = ()
) -> tuple[Follower, list[list[Address]]]:
    """A follower, and the destinations that it has asked for in each round."""
    asked: list[list[Address]] = []

    def ask(addresses: Sequence[Address]) -> Answer:
        asked.append(list(addresses))
        if isinstance(answer, ControllerError):
            raise answer
        return answer

    return Follower(ask, host, [OWN], always, lifetime_s=12), asked


def test_a_possible_answer_is_believed() -> None:
    assert checked([ITEM], {TO}) == Answer({TO: FOUND}, ())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("n_i", value) for value in (-1, 65_537, 1.0, True, "60", None, [60], float("nan"))),
        *(("capacity_bps", value) for value in (0, 7, 1 << 60, -1, None)),
        *(("buffer_bytes", value) for value in (0, -1, 1 << 41, "", {})),
        *(("allowance_bytes", value) for value in (-1, 1 << 32, None)),
        *(("age_s", value) for value in (-0.1, float("nan"), float("inf"), True, "0", None)),
    ],
    ids=str,
)
def test_an_impossible_value_is_refused_and_named(name: str, value: object) -> None:
    answer = checked([ITEM | {name: value}, ITEM | {"to": "10.0.0.2"}], {TO, OTHER})
    assert answer.found == {OTHER: FOUND}
    (why,) = answer.refused
    assert why.startswith(f"10.0.0.1: {name} is")


@pytest.mark.parametrize(
    "item", [None, [], {}, {"to": 1}, {"to": "nobody"}, ITEM | {"to": "10.0.0.9"}], ids=str
)
def test_an_item_without_a_destination_that_was_asked_for_is_refused(item: object) -> None:
    answer = checked([item], {TO})
    assert (answer.found, len(answer.refused)) == ({}, 1)


def test_an_answer_that_is_no_list_is_refused() -> None:
    with pytest.raises(ControllerError, match="not a list"):
        checked({"error": "no"}, {TO})


def test_a_round_writes_the_paths_of_the_destinations() -> None:
    host = MemoryPaths([OTHER])
    following, asked = follower(Answer({TO: FOUND}, ()), host, always=[TO])
    done = following.round()
    assert asked == [[TO, OTHER]]
    assert (done.asked, done.written, done.unknown) == (2, 1, (OTHER,))
    assert host.held == {
        network(TO): PacingPath(150_000, 100_000_000, 1.0, 60, 12, FlowsFrom.NETWORK, 7_500, 0.25)
    }
    following.end()
    assert host.held == {}


def test_nothing_is_asked_without_a_destination() -> None:
    following, asked = follower(Answer({}, ()), MemoryPaths([]))
    assert (following.round().asked, asked) == (0, [])


def test_an_operators_path_stands_and_stays_at_the_end() -> None:
    host = MemoryPaths([TO, OTHER])
    host.held[ipaddress.ip_network("10.0.0.0/31")] = stated = PacingPath(1, 8_000, flows=9)
    following, asked = follower(Answer({TO: FOUND, OTHER: FOUND}, ()), host)
    following.round()
    following.end()
    assert asked == [[OTHER]]
    assert list(host.held.values()) == [stated]


def test_a_path_to_a_destination_that_is_no_longer_followed_is_removed() -> None:
    host = MemoryPaths([TO, OTHER])
    following, _ = follower(Answer({TO: FOUND, OTHER: FOUND}, ()), host)
    following.round()
    host.sent_to.remove(TO)
    following.round()
    assert list(host.held) == [network(OTHER)]


@pytest.mark.parametrize("answer", [ControllerError("gone"), Answer({TO: FOUND}, ())], ids=str)
def test_an_operators_path_replaces_those_of_the_network_within_it(answer: Answer | ControllerError) -> None:
    """Otherwise the network's path, whose prefix is longer, would count instead, with an n that gets old."""
    host = MemoryPaths()
    host.held[network(TO)] = PacingPath(1, 8_000, flows=9, flows_from=FlowsFrom.NETWORK, lifetime_s=1)
    host.held[ipaddress.ip_network("10.0.0.0/24")] = stated = PacingPath(1, 8_000, flows=9)
    follower(answer, host)[0].round()
    assert list(host.held.values()) == [stated]


@pytest.mark.parametrize("answer", [ControllerError("gone"), Answer({}, ("10.0.0.1: n_i is -1",))], ids=str)
def test_a_lost_controller_and_a_refused_value_leave_the_path_to_its_age(
    answer: Answer | ControllerError,
) -> None:
    host = MemoryPaths()
    host.held[network(TO)] = before = PacingPath(
        1, 8_000, flows=9, flows_from=FlowsFrom.NETWORK, lifetime_s=1
    )
    done = follower(answer, host)[0].round()
    assert (done.written, bool(done.error), bool(done.refused)) == (
        0,
        isinstance(answer, ControllerError),
        isinstance(answer, Answer),
    )
    assert host.held == {network(TO): before}


def test_the_number_of_destinations_is_limited() -> None:
    many = [ipaddress.ip_address(f"10.1.{n // 256}.{n % 256}") for n in range(MOST_FOLLOWED + 50)]
    following, asked = follower(Answer({}, ()), MemoryPaths(many))
    done = following.round()
    assert asked == [many[:MOST_FOLLOWED]]
    assert done.limited


@pytest.mark.parametrize(("more", "said"), [(0, False), (1, True)])
@pytest.mark.parametrize("lost", [False, True])
def test_a_line_says_that_not_all_destinations_are_followed(more: int, said: bool, lost: bool) -> None:
    many = [ipaddress.ip_address(f"10.1.{n // 256}.{n % 256}") for n in range(MOST_FOLLOWED + more)]
    answer = ControllerError("gone") if lost else Answer({}, ())
    line = follow_cli._said(follower(answer, MemoryPaths(many))[0].round())
    assert ("only the first 256 are followed" in line) is said


class Dashboard(BaseHTTPRequestHandler):
    """Answers with ``items``, for the right token."""

    protocol_version = "HTTP/1.1"
    items: Any = None
    seen: list[str]

    def do_GET(self) -> None:
        type(self).seen.append(self.path)
        allowed = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        body = json.dumps(type(self).items).encode()
        self.send_response(200 if allowed else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def dashboard(items: object, tls: tuple[Path, Path] | None = None) -> Iterator[tuple[int, list[str]]]:
    """A server on a free port of 127.0.0.1, and the addresses that it was asked for."""
    handler = type("Handler", (Dashboard,), {"items": items, "seen": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tls[1], tls[0])
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_address[1], handler.seen
        finally:
            server.shutdown()


def ask_once(url: str, ca_file: Path | None = None) -> Answer:
    with closing(Controller(url, TOKEN, ca_file)) as controller:
        return controller.ask([TO])


def test_destinations_are_asked_for_in_few_requests() -> None:
    many = [ipaddress.ip_address(f"10.1.0.{n}") for n in range(MOST_ASKED)]
    with dashboard([ITEM]) as (port, seen):
        controller = Controller(f"http://127.0.0.1:{port}/weir/", TOKEN)
        answer = controller.ask([*many, TO])
        controller.close()
    assert answer.found == {TO: FOUND}
    assert len(answer.refused) == 1, "the first answer holds what the first request did not ask for"
    assert seen[1] == "/weir/api/v1/bottlenecks?to=10.0.0.1"


def test_the_server_has_to_prove_its_name_by_the_given_authority(tmp_path: Path) -> None:
    certify(tmp_path, "ca")
    certify(tmp_path, "other")
    right = certify(tmp_path, "right", hosts="IP:127.0.0.1")
    wrong = certify(tmp_path, "wrong", hosts="DNS:weir.example")
    with dashboard([ITEM], right) as (port, _):
        url = f"https://127.0.0.1:{port}"
        assert ask_once(url, tmp_path / "ca.pem").found == {TO: FOUND}
        for authority in (tmp_path / "other.pem", None):
            with pytest.raises(ControllerError, match="certificate verify failed"):
                ask_once(url, authority)
    with dashboard([ITEM], wrong) as (port, _), pytest.raises(ControllerError, match="IP address mismatch"):
        ask_once(f"https://127.0.0.1:{port}", tmp_path / "ca.pem")


def test_a_wrong_token_and_a_lost_controller_are_named() -> None:
    with dashboard([ITEM]) as (port, _):
        controller = Controller(f"http://127.0.0.1:{port}", "wrong")
        with pytest.raises(ControllerError, match=r"answers 401 .*weir accounts add-token"):
            controller.ask([TO])
    with pytest.raises(ControllerError, match=r"(?i)cannot ask 127\.0\.0\.1: .*refused"):
        controller.ask([TO])


@pytest.mark.parametrize("items", [float("nan"), [ITEM | {"age_s": float("inf")}]], ids=str)
def test_numbers_that_json_does_not_have_are_refused(items: object) -> None:
    with dashboard(items) as (port, _), pytest.raises(ControllerError, match="is not a number"):
        ask_once(f"http://127.0.0.1:{port}")


@pytest.mark.parametrize(
    ("url", "token", "why"),
    [
        ("http://10.0.0.9:8080", "", "give https"),
        ("http://weir.example", "", "give https"),
        ("ftp://127.0.0.1", "", "give the URL"),
        ("127.0.0.1:8080", "", "give the URL"),
        ("https://user@weir.example", "", "give the URL"),
        ("https://weir.example:99999", "", "is not a URL"),
        ("https://weir.example", "a\r\nHost: b", "characters"),
    ],
)
def test_addresses_and_tokens_that_are_not_safe_are_refused(url: str, token: str, why: str) -> None:
    with pytest.raises(ControllerError, match=why):
        Controller(url, token)


def test_the_command_names_what_is_missing(tmp_path: Path) -> None:
    def follow(*options: str) -> str:
        return str(CliRunner().invoke(cli.transports, ["follow", *options]).exception or "")

    url = ("--controller", "https://weir.example")
    (tmp_path / "empty").touch()
    assert "cannot read the token" in follow(*url, "--token-file", str(tmp_path / "none"))
    assert "has no token in its first line" in follow(*url, "--token-file", str(tmp_path / "empty"))
    assert "cannot read certificates" in follow(*url, "--ca-certificate", str(tmp_path / "none"))
