"""The `weir` command: it imports a subcommand when that is called, and prints an error in one line."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from weir import cli


def run_main(prelude: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    program = f"{prelude}; import sys; sys.argv = ['weir', *{arguments!r}]; from weir.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
        check=False,
    )


def test_help_lists_every_subcommand_and_imports_none() -> None:
    listed = "[name for name in sys.modules if name.endswith(('.cli', '.doctor'))]"
    done = run_main(f"import atexit, sys; atexit.register(lambda: print({listed}))", "--help")
    assert done.returncode == 0
    assert all(f"  {name} " in done.stdout for name in cli.PARTS)
    assert "['weir.cli']" in done.stdout


@pytest.mark.parametrize("name", sorted(cli.PARTS))
def test_every_subcommand_prints_its_help(name: str) -> None:
    result = CliRunner().invoke(cli.weir, [name, "--help"])
    assert result.exit_code == 0, result.output
    assert result.output.startswith(f"Usage: weir {name}")


def test_a_package_that_cannot_be_imported_disables_its_subcommand_only() -> None:
    broken = "import sys; sys.modules['mininet_topos.cli'] = None"
    done = run_main(broken, "lab")
    assert done.returncode == 1
    assert done.stderr.startswith("Error: lab cannot be loaded: ")
    assert done.stderr.count("\n") == 1
    assert run_main(broken, "doctor", "--help").returncode == 0


def test_an_unexpected_error_is_one_line_and_a_traceback_with_weir_debug() -> None:
    failing = (
        "import sys, types, click, weir.cli; module = types.ModuleType('failing'); "
        "sys.modules['failing'] = module; module.lab = click.command()(lambda: {}['the key']); "
        "weir.cli.PARTS['lab'] = weir.cli.Part('failing:lab', '')"
    )
    done = run_main(failing, "lab")
    assert (done.returncode, done.stderr) == (1, "weir: KeyError: 'the key'\n")
    assert "Traceback" in run_main(failing, "lab", WEIR_DEBUG="1").stderr


def test_an_unknown_subcommand_is_refused() -> None:
    result = CliRunner().invoke(cli.weir, ["nonsense"])
    assert result.exit_code == 2
    assert "No such command 'nonsense'" in result.output


def test_the_group_is_a_click_group() -> None:
    assert isinstance(cli.weir, click.Group)
