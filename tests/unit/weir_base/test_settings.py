"""The configuration file: defaults, values, and one clear line for each mistake."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from pydantic import Field, ValidationError

from weir_base import settings


class Sdtcp(settings.Section):
    k_pkts: int = Field(30, ge=1)
    policy: str = "longest-lived"


class Strict(settings.Section):
    url: str


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "weir.toml"
    monkeypatch.setenv("WEIR_CONFIG", str(path))
    return path


def error_of(model: type[settings.Section] = Sdtcp, section: str = "sdtcp") -> str:
    with pytest.raises(settings.SettingsError) as caught:
        settings.load(section, model)
    return str(caught.value)


@pytest.mark.parametrize("value", [None, ""])
def test_defaults_without_a_file(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEIR_CONFIG", raising=False)
    if value is not None:
        monkeypatch.setenv("WEIR_CONFIG", value)
    assert settings.load("sdtcp", Sdtcp) == Sdtcp()


@pytest.fixture
def machine_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The machine's file, which does not exist, without a file in the variable."""
    path = tmp_path / "etc" / "weir.toml"
    path.parent.mkdir()
    monkeypatch.delenv("WEIR_CONFIG", raising=False)
    monkeypatch.setattr(settings, "MACHINE_FILE", str(path))
    return path


def test_the_file_of_the_services_is_used_if_the_variable_is_not_set(
    machine_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = settings.Watch("sdtcp", Sdtcp)
    assert settings.load("sdtcp", Sdtcp) == Sdtcp()
    machine_file.write_text("[sdtcp]\nk_pkts = 20\n")
    assert settings.load("sdtcp", Sdtcp) == watch.news() == Sdtcp(k_pkts=20)
    machine_file.write_text("[sdtcp]\nk_pkts = 0\n")
    assert error_of().startswith(f"{machine_file}: [sdtcp] k_pkts")
    monkeypatch.setenv("WEIR_CONFIG", "")
    assert settings.load("sdtcp", Sdtcp) == Sdtcp()


def test_a_file_of_the_services_that_cannot_be_read_is_an_error(
    machine_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the defaults a command would act on another database. Not even stat may be allowed."""

    def refuse(path: str, *_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", refuse)
        patch.setattr("builtins.open", refuse)
        error = error_of()
    assert error == (
        f"{machine_file}: cannot be read (Permission denied); run this as root or as a member of the file's"
        " group, or name another file in WEIR_CONFIG"
    )


def test_values_come_from_the_section(config: Path) -> None:
    config.write_text("[sccp]\nk_pkts = 1\n[sdtcp]\nk_pkts = 20\n")
    assert settings.load("sdtcp", Sdtcp) == Sdtcp(k_pkts=20)
    assert settings.load("fabric", Sdtcp) == Sdtcp()


def test_a_section_is_frozen() -> None:
    with pytest.raises(ValidationError):
        Sdtcp().k_pkts = 5  # type: ignore[misc]


def test_unknown_key_names_file_section_key_and_the_known_ones(config: Path) -> None:
    config.write_text("[sdtcp]\nk_pkt = 20\n")
    message = f"{config}: [sdtcp] k_pkt: unknown key; remove it or use one of: k_pkts, policy"
    assert error_of() == message


def test_every_problem_has_a_line_of_its_own(config: Path) -> None:
    config.write_text("[sdtcp]\nk_pkts = 0\npolicy = 7\n")
    lines = error_of().splitlines()
    assert [line.split(": ")[1] for line in lines] == ["[sdtcp] k_pkts", "[sdtcp] policy"]
    assert all(line.startswith(str(config)) and "correct it" in line for line in lines)


def test_a_missing_key_without_a_file_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEIR_CONFIG", raising=False)
    assert error_of(Strict, "flowdb") == "the defaults: [flowdb] url: missing; add it"


def test_errors_do_not_contain_values(config: Path) -> None:
    config.write_text('[sdtcp]\nk_pkts = "postgresql://weir:secret@db"\n')
    assert "secret" not in error_of()


def test_missing_file_is_named(config: Path) -> None:
    assert error_of() == f"{config}: cannot be read (No such file or directory); correct or unset WEIR_CONFIG"


@pytest.mark.parametrize("content", [b"[sdtcp\n", b"\xff\xfe"])
def test_broken_toml_is_named(config: Path, content: bytes) -> None:
    config.write_bytes(content)
    assert error_of().startswith(f"{config}: is not TOML: ")


def test_a_value_instead_of_a_section_is_an_error(config: Path) -> None:
    config.write_text("sdtcp = 3\n")
    assert error_of() == f"{config}: sdtcp is not a section; write [sdtcp] on a line of its own"


def test_an_app_exits_with_only_the_error_message(config: Path) -> None:
    config.write_text("[sdtcp]\nk_pkt = 20\n")
    with pytest.raises(SystemExit, match=r"^weir: .*k_pkt: unknown key"):
        settings.load_or_exit("sdtcp", Sdtcp)
    config.write_text("")
    assert settings.load_or_exit("sdtcp", Sdtcp) == Sdtcp()
