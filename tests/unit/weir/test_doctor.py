"""`weir doctor`: one line for each check, and exit code 1 if the demo cannot run."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from weir import doctor, probes
from weir.doctor import Check, examine


def succeeds() -> str:
    return "seen"


def fails() -> str:
    raise probes.ProbeFailed("not there")


def crashes() -> str:
    raise ZeroDivisionError


def results(monkeypatch: pytest.MonkeyPatch, *checks: Check) -> tuple[int, str, dict]:
    monkeypatch.setattr(doctor, "examine", lambda: examine(checks))
    text = CliRunner().invoke(doctor.doctor)
    as_json = CliRunner().invoke(doctor.doctor, ["--json"])
    assert text.exit_code == as_json.exit_code
    return text.exit_code, text.stdout, json.loads(as_json.stdout)


def test_a_feature_that_is_there_is_a_yes_without_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    code, text, data = results(monkeypatch, Check("kernel", "BTF", succeeds, "get it"))
    assert code == 0
    assert text.splitlines()[0].split() == ["yes", "kernel", "BTF", "seen"]
    assert data["ok"] is True
    assert data["checks"][0]["remedy"] == ""


def test_a_missing_required_feature_exits_1_and_prints_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    code, text, data = results(
        monkeypatch, Check("kernel", "BTF", fails, "get it"), Check("lab", "Mininet", succeeds, "")
    )
    assert code == 1
    assert text.splitlines()[0].split() == ["no", "kernel", "BTF", "not", "there", "->", "get", "it"]
    assert text.splitlines()[-1] == "The demo cannot run here. Missing: BTF."
    assert [check["ok"] for check in data["checks"]] == [False, True]


def test_a_missing_optional_feature_does_not_stop_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    code, text, _ = results(monkeypatch, Check("kernel", "netem", fails, "get it", required=False))
    assert code == 0
    assert "not there -> optional: get it" in text


def test_a_probe_that_crashes_is_a_no_and_the_other_checks_run(monkeypatch: pytest.MonkeyPatch) -> None:
    code, text, data = results(
        monkeypatch, Check("kernel", "one", crashes, "r"), Check("kernel", "two", succeeds, "")
    )
    assert code == 1
    assert "ZeroDivisionError -> r" in text
    assert data["checks"][1]["ok"] is True


def test_a_check_that_needs_root_is_skipped_without_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "rights", fails)
    findings = list(examine([Check("kernel", "veth", crashes, "r", needs_root=True)]))
    assert (findings[0].found, findings[0].remedy) == ("not tried", "run weir doctor as root")


def test_tools_names_the_missing_commands() -> None:
    with pytest.raises(probes.ProbeFailed, match=r"^not found: no-such-tool$"):
        probes.tools("sh", "no-such-tool")


def test_a_failed_command_is_reported_by_its_last_line() -> None:
    with pytest.raises(probes.ProbeFailed, match=r"^sh: the reason$"):
        probes.run("sh", "-c", "echo first; echo the reason >&2; exit 3")


def test_required_python_packages_are_read_from_the_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        probes.importlib.metadata, "requires", lambda _: ["click>=8", "not-there==1", 'x; extra == "t"']
    )
    with pytest.raises(probes.ProbeFailed, match=r"^not installed: not-there$"):
        probes.python_packages()


def test_a_kernel_without_btf_has_no_tracepoints(monkeypatch: pytest.MonkeyPatch) -> None:
    class Library:
        """libbpf, whose other functions end the process with a null pointer."""

        @staticmethod
        def btf__load_vmlinux_btf() -> None:
            return None

    monkeypatch.setattr(probes, "_libbpf", Library)
    with pytest.raises(probes.ProbeFailed, match=r"^the kernel has no BTF that libbpf can read$"):
        probes.qdisc_tracepoints()


def test_an_error_in_a_private_network_reaches_the_caller() -> None:
    with pytest.raises((ValueError, probes.ProbeFailed), match=r"broken inside|no network namespace"):
        probes.in_private_network(_raise)


def _raise() -> None:
    raise ValueError("broken inside")


def test_the_output_fits_80_columns_without_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails_at_length() -> str:
        raise probes.ProbeFailed("a long reason " * 30)

    monkeypatch.setenv("COLUMNS", "80")
    checks = [Check("controller", "congestion controls", fails_at_length, "a remedy " * 20)] * 2
    _, text, _ = results(monkeypatch, *checks)
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "\x1b" not in text
    assert text.count("a remedy") == 40, "no remedy is cut"
