"""`weir config check`: the file as a whole; every fault is reported at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from app_base.stage import settings_models
from weir.config import config


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_CONFIG", "")


def check(folder: Path, text: str, *options: str) -> Result:
    file = folder / "weir.toml"
    file.write_text(text)
    return CliRunner().invoke(config, ["check", str(file), *options])


def test_a_correct_file_passes(tmp_path: Path) -> None:
    result = check(tmp_path, "[sdtcp]\nk_pkts = 30\n[flowdb]\nurl = 'sqlite:////tmp/x.db'\n")
    assert (result.exit_code, result.output) == (0, f"{tmp_path}/weir.toml: good\n")


def test_json_has_every_setting_in_force(tmp_path: Path) -> None:
    settings = json.loads(check(tmp_path, "[sdtcp]\nk_pkts = 30\n", "--json").output)
    assert set(settings) == set(settings_models())
    assert settings["sdtcp"]["k_pkts"] == 30
    assert settings["sccp"]["common_rtt_us"] == 600


def test_every_fault_is_reported_with_its_place(tmp_path: Path) -> None:
    result = check(tmp_path, "[sdtpc]\n[sdtcp]\nk_pkts = 0\ncolour = 'red'\n[sccp]\ncommon_rtt_us = 'long'\n")
    assert result.exit_code == 1
    for part in (
        "unknown section [sdtpc]",
        "[sdtcp] k_pkts",
        "[sdtcp] colour: unknown key",
        "[sccp] common_rtt_us",
    ):
        assert part in result.stderr


@pytest.mark.parametrize("text", ["sdtcp = 3", "not toml", "[sdtcp"])
def test_a_file_that_is_not_a_configuration_is_refused(tmp_path: Path, text: str) -> None:
    result = check(tmp_path, text)
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(config, ["check", str(tmp_path / "none.toml")])
    assert result.exit_code == 2
    assert "does not exist" in result.stderr
