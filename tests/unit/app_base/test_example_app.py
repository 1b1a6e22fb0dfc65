"""The example app: once it is installed, Weir knows it, and its own tests pass."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.controllers.example_app import EXAMPLE, environment, install

COLLIDING_STAGE = """
from app_base.stage import Stage
from weir_base.settings import Section

STAGE = Stage(name="other", table=10, cookie=7 << 32, app="other_app.app", settings=Section)
"""


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("example"))


def run(target: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-m", *argv],
        env=environment(target, WEIR_CONFIG="", WEIR_DB=str(target / "weir.db")),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_the_example_s_own_tests_pass(target: Path) -> None:
    done = run(target, "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLE / "tests"))
    assert done.returncode == 0, done.stdout


def test_its_section_is_known_to_weir_config_check(target: Path, tmp_path: Path) -> None:
    file = tmp_path / "weir.toml"
    file.write_text('[[window_limit.limits]]\nsubnet = "10.0.0.0/8"\nwindow_bytes = 1000\n')
    done = run(target, "weir", "config", "check", str(file))
    assert (done.returncode, done.stdout) == (0, f"{file}: good\n")
    file.write_text("[window_limit]\nlimit = 1\n")
    done = run(target, "weir", "config", "check", str(file))
    assert done.returncode == 1
    assert "[window_limit] limit: unknown key" in done.stderr


def add_colliding_app(folder: Path) -> None:
    """A further installed package, whose stage has the table of the example."""
    (folder / "other_stage.py").write_text(COLLIDING_STAGE)
    metadata = folder / "other_app-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: other-app\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[weir.stages]\nother = other_stage:STAGE\n")


def test_a_collision_is_refused_with_both_names(target: Path, tmp_path: Path) -> None:
    both = tmp_path / "site-packages"
    shutil.copytree(target, both)
    add_colliding_app(both)
    file = tmp_path / "weir.toml"
    file.write_text("")
    checked = run(both, "weir", "config", "check", str(file))
    started = run(both, "weir", "controller", "--listen", "127.0.0.1:1", "--apps", "window_limit_app.app")
    for done in (checked, started):
        assert done.returncode == 1
        both_names = "stages other (other_app.app) and window_limit (window_limit_app.app)"
        assert f"{both_names} both have table 10" in done.stderr
