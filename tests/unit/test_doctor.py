"""`weir doctor`: a line a check, exit 1 where the demo could not run."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from weir import doctor, probes
from weir.doctor import Check, examine


def works() -> str:
    return "seen"


def lacks() -> str:
    raise probes.ProbeFailed("not there")


def crashes() -> str:
    raise ZeroDivisionError


def ask(monkeypatch: pytest.MonkeyPatch, *checks: Check) -> tuple[int, str, dict]:
    monkeypatch.setattr(doctor, "examine", lambda: examine(checks))
    text = CliRunner().invoke(doctor.doctor)
    as_json = CliRunner().invoke(doctor.doctor, ["--json"])
    assert text.exit_code == as_json.exit_code
    return text.exit_code, text.stdout, json.loads(as_json.stdout)


def test_all_well(monkeypatch: pytest.MonkeyPatch) -> None:
    code, text, data = ask(monkeypatch, Check("kernel", "BTF", works, "get it"))
    assert code == 0
    assert text.splitlines()[0].split() == ["yes", "kernel", "BTF", "seen"]
    assert data["ok"] is True
    assert data["checks"][0]["remedy"] == ""


def test_a_required_lack_exits_1_and_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    code, text, data = ask(
        monkeypatch, Check("kernel", "BTF", lacks, "get it"), Check("lab", "Mininet", works, "")
    )
    assert code == 1
    assert text.splitlines()[0].split() == ["no", "kernel", "BTF", "not", "there", "->", "get", "it"]
    assert text.splitlines()[-1] == "The demo cannot run here: BTF."
    assert [check["ok"] for check in data["checks"]] == [False, True]


def test_an_optional_lack_does_not_stop_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    code, text, _ = ask(monkeypatch, Check("kernel", "netem", lacks, "get it", required=False))
    assert code == 0
    assert "not there -> optional; get it" in text


def test_a_probe_that_breaks_is_a_no_and_the_rest_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    code, text, data = ask(
        monkeypatch, Check("kernel", "one", crashes, "r"), Check("kernel", "two", works, "")
    )
    assert code == 1
    assert "ZeroDivisionError -> r" in text
    assert data["checks"][1]["ok"] is True


def test_what_needs_root_is_not_tried_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "rights", lacks)
    findings = list(examine([Check("kernel", "veth", crashes, "r", needs_root=True)]))
    assert (findings[0].found, findings[0].remedy) == ("not tried", "run this as root")


def test_tools_names_what_is_missing() -> None:
    with pytest.raises(probes.ProbeFailed, match=r"^not found: no-such-tool$"):
        probes.tools("sh", "no-such-tool")


def test_a_failed_command_gives_its_last_line() -> None:
    with pytest.raises(probes.ProbeFailed, match=r"^sh: the reason$"):
        probes.run("sh", "-c", "echo first; echo the reason >&2; exit 3")


def test_python_packages_are_those_of_the_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        probes.importlib.metadata, "requires", lambda _: ["click>=8", "not-there==1", 'x; extra == "t"']
    )
    with pytest.raises(probes.ProbeFailed, match=r"^not installed: not-there$"):
        probes.python_packages()


def test_what_fails_in_a_private_network_is_told() -> None:
    with pytest.raises((ValueError, probes.ProbeFailed), match=r"broken inside|no network namespace"):
        probes.in_private_network(_raise)


def _raise() -> None:
    raise ValueError("broken inside")
