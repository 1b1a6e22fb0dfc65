"""The bundle for a bug report: what it holds, who can read it, and that no secret is in it."""

from __future__ import annotations

import json
import stat
import tarfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import assume, given
from hypothesis import strategies as st

from weir.redaction import settings_without_secrets, without_secrets
from weir.support import UNITS, support
from weir_base.paths import PROJECT

DB_PASSWORD = "Tr0ub4dor&3/x"  # noqa: S105 - planted, to be removed
QUERY_PASSWORD = "query-secret-99"  # noqa: S105 - planted, to be removed
OTHERS = {
    "a URL's password": "postgresql://weir:log-p@ss/word@db.example:5432/weir",
    "an assignment": "password = 'assigned-secret'",
    "JSON": '{"api_token": "json-token-1234", "n": 3}',
    "a header": "Authorization: Bearer bearer-token-5678",
    "a cookie": "Cookie: session=cookie-value-91",
    "a header in JSON": '{"Authorization": "Bearer bearer-token-5678", "n": 3}',
    "a header in Python": "{'authorization': 'Basic bearer-token-5678'}",
    "a cookie in JSON": '{"Cookie": "a=1; session=cookie-value-91", "n": 3}',
    "a cookie in Python": "{'Cookie': 'session=cookie-value-91'}",
    "a cookie with quotes": 'Cookie: theme="dark"; session=cookie-value-91',
    "a password with a quote": '{"password": "x\\"assigned-secret", "n": 3}',
    "a string that is JSON": json.dumps(json.dumps({"Cookie": "a=1; session=cookie-value-91"})),
    "a password of two words": '{"password": "two assigned-secret", "n": 3}',
    "a hash": "$argon2id$v=19$m=65536,t=3,p=4$c2FsdHNhbHQ$hash-of-a-password",
    "a key": "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIprivate\n-----END EC PRIVATE KEY-----",
    "half a key": "-----BEGIN PRIVATE KEY-----\nMIIEvQhalf",
}
PLANTED = (
    *("log-p@ss", "word@db", "assigned-secret", "json-token-1234", "bearer-token-5678", "cookie-value-91"),
    *("hash-of-a-password", "MHcCAQEEIprivate", "MIIEvQhalf"),
)
URL = "postgresql://weir:Tr0ub4dor%263%2Fx@nowhere.invalid/weir?password=query-secret-99"


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, dict[str, str]]:
    """A bundle of a machine whose configuration, environment and logs hold secrets."""
    config, log, out = tmp_path / "weir.toml", tmp_path / "app.log", tmp_path / "report.tar.gz"
    config.write_text(f'[flowdb]\nurl = "{URL}"\n\n[sccp]\nmode = "observe"\n')
    log.write_text(
        "\n".join(
            [
                f"connected with {DB_PASSWORD} to x",
                f"and {QUERY_PASSWORD}",
                "line that stays",
                *OTHERS.values(),
            ]
        )
    )
    monkeypatch.setenv("WEIR_DB", URL)
    monkeypatch.setenv("WEIR_CONFIG", str(config))
    done = CliRunner().invoke(support, ["--out", str(out), "--log", str(log), "--name", "no-such-plane"])
    assert done.exit_code == 0, done.output
    with tarfile.open(out) as tar:
        texts = {one.name: tar.extractfile(one).read().decode() for one in tar.getmembers()}  # type: ignore[union-attr]
    return out, texts


def test_bundle_holds_versions_settings_counters_and_logs(bundle: tuple[Path, dict[str, str]]) -> None:
    _, texts = bundle
    names = {name.removeprefix("weir-support/") for name in texts}
    assert {
        "versions.json",
        "settings.json",
        "ports.json",
        "entries.json",
        "maps.json",
        "logs/0-app.log",
    } <= names
    settings = json.loads(texts["weir-support/settings.json"])
    assert settings["sccp"]["mode"] == "observe"
    assert "weir" in json.loads(texts["weir-support/versions.json"])["packages"]
    assert "line that stays" in texts["weir-support/logs/0-app.log"]


def test_bundle_has_the_log_of_every_unit_that_is_packaged() -> None:
    packaged = {path.stem for path in (PROJECT / "packaging").glob("*.service")}
    assert set(UNITS) == packaged
    listed = (PROJECT / "packaging" / "README.md").read_text()
    assert [unit for unit in packaged if f"`{unit}.service`" not in listed] == []


def test_bundle_is_readable_by_its_owner_only(bundle: tuple[Path, dict[str, str]]) -> None:
    assert stat.S_IMODE(bundle[0].stat().st_mode) == 0o600


def test_no_planted_secret_is_in_any_member(bundle: tuple[Path, dict[str, str]]) -> None:
    for name, text in bundle[1].items():
        for planted in (*PLANTED, DB_PASSWORD, "Tr0ub4dor", QUERY_PASSWORD):
            assert planted not in text, name


def test_a_part_that_cannot_be_read_is_replaced_by_the_reason(bundle: tuple[Path, dict[str, str]]) -> None:
    assert "no data plane at" in bundle[1]["weir-support/ports.json"]


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    out = tmp_path / "report.tar.gz"
    out.write_text("mine")
    done = CliRunner().invoke(support, ["--out", str(out)])
    assert done.exit_code == 1
    assert "--out" in done.output
    assert out.read_text() == "mine"


@pytest.mark.parametrize("kind", OTHERS)
def test_text_that_looks_like_a_secret_is_removed(kind: str) -> None:
    kept = without_secrets(f"before\n{OTHERS[kind]}")
    assert kept.startswith("before\n")
    assert not any(secret in kept for secret in PLANTED), kept


@given(st.text(min_size=8, max_size=30), st.text(), st.text())
def test_a_known_secret_is_removed_wherever_it_is(secret: str, before: str, after: str) -> None:
    assume(secret not in "[removed]" + before + after)
    assert secret not in without_secrets(before + "\n" + secret + "\n" + after, [secret])


@pytest.mark.parametrize("dumps", [json.dumps, partial(json.dumps, ensure_ascii=False)])
def test_a_known_secret_is_removed_from_json(dumps: Callable[[str], str]) -> None:
    kept = without_secrets(dumps('connected with pa"ss\\wörd to x'), ['pa"ss\\wörd'])
    assert kept == '"connected with [removed] to x"'


@pytest.mark.parametrize("kind", [kind for kind, text in OTHERS.items() if text.startswith('{"')])
def test_json_stays_json_without_its_secrets(kind: str) -> None:
    kept = json.loads(without_secrets(OTHERS[kind]))
    assert kept.pop("n") == 3
    assert list(kept.values()) == ["[removed]"]


def test_settings_keep_paths_and_lose_secrets() -> None:
    held = {
        "private_key": "/etc/weir/key.pem",
        "metrics_token": "abc",
        "nested": [{"password": "x"}],
        "k_pkts": 20,
    }
    assert settings_without_secrets(held) == {
        "private_key": "/etc/weir/key.pem",
        "metrics_token": "[removed]",
        "nested": [{"password": "[removed]"}],
        "k_pkts": 20,
    }
