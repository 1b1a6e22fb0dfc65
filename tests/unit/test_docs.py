"""Every command line that the pages show exists: make targets, `weir` with its options, `ryu-manager`."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from weir import cli

PROJECT = Path(__file__).resolve().parents[2]
PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#]+?)(?:#[^)]*)?\)")
# Other people's programs, shown but not checked further.
FOREIGN = {
    "apt-get",
    "curl",
    "git",
    "ip",
    "journalctl",
    "ovs-ofctl",
    "ovs-vsctl",
    "ss",
    "sudo",
    "tcpdump",
    "tc",
}


def commands(page: Path) -> list[str]:
    text = "\n".join(FENCE.findall(page.read_text())).replace("\\\n", " ")
    lines = (re.sub(r"\s+# .*", "", line).strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):", (PROJECT / "Makefile").read_text(), re.MULTILINE))


def check(words: list[str]) -> None:
    """Raises AssertionError or click.ClickException for a command that is not known."""
    while words and ("=" in words[0] or words[0] == "sudo"):
        words = words[1:]
    assert words, "nothing but assignments"
    program, arguments = Path(words[0]).name, words[1:]
    if program == "make":
        assert set(arguments) <= make_targets()
    elif program == "weir":
        check_weir(cli.weir, ["weir"], arguments)
    elif program == "ryu-manager":
        assert all((PROJECT / name.replace(".", "/")).with_suffix(".py").exists() for name in ours(arguments))
    else:
        assert program in FOREIGN or (PROJECT / words[0]).exists(), f"{program} is unknown"


def ours(arguments: list[str]) -> list[str]:
    return [name for name in arguments if re.match(r"(fabric|sdtcp|sccp)_app\.", name)]


def check_weir(command: click.Command, path: list[str], arguments: list[str]) -> None:
    """Parse as click would, one level of subcommands after the other, and run nothing."""
    context = click.Context(command, info_name=path[-1], resilient_parsing=False)
    if {"-h", "--help", "--version"} & set(arguments[:1]):
        return
    rest = (
        command.make_context(path[-1], list(arguments)).args if not isinstance(command, click.Group) else None
    )
    if rest is None:
        assert isinstance(command, click.Group)
        assert arguments, f"{' '.join(path)} needs a subcommand"
        found = command.get_command(context, arguments[0])
        assert found is not None, f"{' '.join(path)} has no {arguments[0]}"
        check_weir(found, [*path, arguments[0]], arguments[1:])


CASES = [pytest.param(line, id=f"{page.name}: {line}") for page in PAGES for line in commands(page)]


@pytest.mark.parametrize("line", CASES)
def test_the_command_exists(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "weir.toml").touch()
    monkeypatch.chdir(tmp_path)
    for part in re.split(r"\s(?:&&|\||&)\s?", line.rstrip(" &")):
        check(shlex.split(part, comments=True))


@pytest.mark.parametrize("line", ["make nonsense", "weir nonsense", "weir doctor --nonsense", "nonsense"])
def test_a_command_that_does_not_exist_is_found_out(line: str) -> None:
    with pytest.raises((AssertionError, click.ClickException)):
        check(shlex.split(line))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = [link for link in LINK.findall(page.read_text()) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []
