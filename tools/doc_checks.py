"""What a page of documentation says about the project, compared with the project itself.

Commands in `sh` blocks and in inline code must exist, with their options. Settings in `toml` blocks and in
inline code must exist. Paths of the project in inline code must exist. A `toml` block with a title is the
content of another file and is not checked.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
from click.shell_completion import split_arg_string
from pydantic import ValidationError

from weir import cli
from weir.config import installed_models

PROJECT = Path(__file__).resolve().parent.parent
PAGES = [
    *(PROJECT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "ROADMAP.md")),
    *sorted((PROJECT / "docs").rglob("*.md")),
]
# The tests of recipes run the commands of this page, with the files that they need.
RECIPES = PROJECT / "docs" / "extending.md"
# Programs of others, shown but not checked further.
FOREIGN = {
    *("apt-get", "curl", "git", "ip", "journalctl", "mkdir", "ovs-ofctl", "ovs-vsctl", "ss", "sudo"),
    *("tcpdump", "tc", "pre-commit", "pytest", "ruff", "mypy"),
}
MODELS = installed_models()
# Folders that builds and runs make.
MADE = ("build", "results", "site", ".venv", "node_modules")

_SH = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
_TOML = re.compile(r"^```toml\n(.*?)^```", re.MULTILINE | re.DOTALL)
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`\n]+)`")
_SETTING = re.compile(r"\[(\w+)\](?: (\w+))?(?: = .*)?$")
_PATH = re.compile(r"(?:[\w.-]+/)+[\w.-]*")
_APP = re.compile(r"\b((?:fabric|sdtcp|sccp|telemetry)_app\.\w+)")


def problems(text: str) -> list[str]:
    """Every command, setting and path of a page that does not exist."""
    return [*command_problems(text), *setting_problems(text), *path_problems(text)]


def commands(text: str) -> list[str]:
    """The commands in a page's `sh` blocks, one a line."""
    shown = "\n".join(_SH.findall(text)).replace("\\\n", " ")
    lines = (re.sub(r"\s+# .*", "", line).strip() for line in shown.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def page_commands(page: Path) -> list[str]:
    """The commands of a page, except those that the tests of recipes run."""
    return [] if page == RECIPES else commands(page.read_text())


def _inline(text: str) -> list[str]:
    return _INLINE.findall(_FENCE.sub("", text))


def command_problems(text: str) -> Iterator[str]:
    """The problems of the commands in `sh` blocks and in inline code."""
    for line in commands(text):
        for part in re.split(r"\s(?:&&|\||&)\s?", line.rstrip(" &")):
            if problem := command_problem(shlex.split(part, comments=True)):
                yield f"{part}: {problem}"
    for code in _inline(text):
        words = code.split()
        if words[0] in ("weir", "make", "ryu-manager") and words[1:]:
            if problem := _program_problem(words[0], _without_placeholders(split_arg_string(code)[1:])):
                yield f"{code}: {problem}"
        elif words[:2] == ["python", "-m"] and words[2:] and (problem := _module_problem(words[2])):
            yield f"{code}: {problem}"


def _without_placeholders(words: list[str]) -> list[str]:
    """Without words such as NAME or FILE, which stand for something."""
    return [word for word in words if not re.fullmatch(r"[A-Z][A-Z_]*|\.\.\.", word)]


def command_problem(words: list[str]) -> str | None:
    """Why a command of an `sh` block cannot be run, or None."""
    while words and ("=" in words[0] or words[0] == "sudo"):
        words = words[1:]
    if not words:
        return "nothing but assignments"
    program = Path(words[0]).name
    if program in ("weir", "make", "ryu-manager"):
        return _program_problem(program, words[1:])
    if program.startswith("python") and words[1:2] == ["-m"]:
        return _module_problem(words[2])
    known = program in FOREIGN or (PROJECT / words[0]).exists()
    return None if known else f"{program} is unknown"


def _program_problem(program: str, arguments: list[str]) -> str | None:
    if program == "make":
        missing = {one for one in arguments if "=" not in one} - make_targets()  # NAME=VALUE is a variable
        return f"no target {', '.join(sorted(missing))}" if missing else None
    if program == "ryu-manager":
        missing = {name for name in _APP.findall(" ".join(arguments)) if _module_problem(name)}
        return f"no module {', '.join(sorted(missing))}" if missing else None
    return weir_problem(cli.weir, arguments)


def weir_problem(command: click.Command, arguments: list[str]) -> str | None:
    """Whether subcommand and options exist. Arguments are not checked, because a page may leave them out."""
    context = click.Context(command, info_name="weir")
    while isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
        found = command.get_command(context, arguments[0])
        if found is None:
            return f"no command {arguments[0]}"
        command, arguments = found, arguments[1:]
        context = click.Context(command, info_name=command.name, parent=context)
    known = {
        name for option in command.get_params(context) for name in (*option.opts, *option.secondary_opts)
    }
    given = {word.partition("=")[0] for word in arguments if re.match(r"--?[A-Za-z]", word)}
    missing = given - known - {"-h", "--help"}
    return f"no option {', '.join(sorted(missing))}" if missing else None


@cache
def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(), re.MULTILINE))


def _module_problem(name: str) -> str | None:
    path = PROJECT / name.replace(".", "/")
    return None if path.with_suffix(".py").exists() or path.is_dir() else f"no module {name}"


def setting_problems(text: str) -> Iterator[str]:
    """The problems of settings in `toml` blocks, and in inline code such as `[sdtcp] k_pkts`."""
    for block in _TOML.findall(text):
        try:
            document = tomllib.loads(block)
        except tomllib.TOMLDecodeError as error:
            yield f"a toml block: {error}"
            continue
        for name, values in document.items():
            yield from _section_problems(name, values)
    for code in _inline(text):
        if found := _SETTING.match(code):
            name, key = found.groups()
            if name not in MODELS:
                yield f"{code}: no section [{name}]"
            elif key and key not in MODELS[name].model_fields:
                yield f"{code}: [{name}] has no setting {key}"


def _section_problems(name: str, values: object) -> Iterator[str]:
    if name not in MODELS or not isinstance(values, dict):
        yield f"no section [{name}]"
        return
    try:
        MODELS[name](**values)
    except ValidationError as error:
        for problem in error.errors(include_url=False):
            yield f"[{name}] {'.'.join(map(str, problem['loc']))}: {problem['msg']}"


def path_problems(text: str) -> Iterator[str]:
    """The paths in inline code that lead into the project's folders but to nothing."""
    for code in _inline(text):
        path = code.partition("::")[0].removeprefix("./")
        first = path.split("/")[0]
        if not _PATH.fullmatch(path) or first in MADE or not (PROJECT / first).is_dir():
            continue
        if not (PROJECT / path).exists():
            yield f"{code}: no such file or folder"
