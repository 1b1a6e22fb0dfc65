"""Reads the recipes of docs/extending.md and carries each out in a copy of the project.

A recipe is a section (`## ...`) of the page. Its fenced blocks are carried out from top to bottom:

- `python title="path/to/new_file"` (any language): the block is written to that path. The file must be new.
- `diff`: the block is applied with `git apply`.
- `sh`: the block is run by `bash` in the project's folder, and must exit with 0.

Blocks of any other kind are for the reader alone. `<!-- tier: bpf -->` below the heading names the tier of
tests that the commands need (`unit` if there is none).

The copy holds the tracked files, `build/`, and a virtual environment of its own, so that a recipe can
install a package. It sees the packages that are installed in this project's environment. The line
`make setup` installs only the copy itself, because its dependencies are there and a test needs no network.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import venv
from dataclasses import dataclass
from pathlib import Path

from weir_base.paths import PROJECT

PAGE = PROJECT / "docs" / "extending.md"
TIERS = ("unit", "bpf", "integration")
UNWRITTEN = "To be written."
# A recipe's slowest command builds a network, or the BPF programs.
COMMAND_TIMEOUT_S = 300

_FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TITLE = re.compile(r'title="([^"]+)"')
_TIER = re.compile(r"^<!-- tier: (\w+) -->$", re.MULTILINE)
_REINSTALL = ".venv/bin/python -m pip install --quiet --no-deps --no-build-isolation --no-index -e ."


class RecipeError(Exception):
    """A recipe cannot be read or carried out; the message names the recipe and the block."""


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the path in its title (if any) and its text."""

    language: str
    path: str | None
    text: str


@dataclass(frozen=True)
class Recipe:
    title: str
    tier: str
    blocks: tuple[Block, ...]
    written: bool


def read_recipes(page: Path = PAGE) -> list[Recipe]:
    """The recipes of a page, in its order. Raises RecipeError for an unknown tier."""
    _, *sections = re.split(r"^## ", _outside_fences(page.read_text()), flags=re.MULTILINE)
    return [_read_recipe(section) for section in sections]


def _outside_fences(text: str) -> str:
    """The text with the headings inside fenced blocks made unrecognisable as headings."""
    return _FENCE.sub(lambda fence: fence.group().replace("\n## ", "\n\0## "), text)


def _read_recipe(section: str) -> Recipe:
    title, _, body = section.partition("\n")
    body = body.replace("\0", "")
    found = _TIER.search(body)
    tier = found.group(1) if found else "unit"
    if tier not in TIERS:
        raise RecipeError(f"{title}: unknown tier {tier}; use one of {', '.join(TIERS)}")
    blocks = []
    for language, info, text in _FENCE.findall(body):
        named = _TITLE.search(info)
        blocks.append(Block(language, named.group(1) if named else None, text))
    return Recipe(title.strip(), tier, tuple(blocks), UNWRITTEN not in body)


def recipes_of(tier: str) -> list[Recipe]:
    return [recipe for recipe in read_recipes() if recipe.tier == tier]


def carry_out(recipe: Recipe, folder: Path) -> None:
    """Carries a recipe out in `folder`, which must hold a copy of the project.

    Raises RecipeError with the output of the command that failed.
    """
    for number, block in enumerate(recipe.blocks, 1):
        where = f"{recipe.title}, block {number} ({block.path or block.language})"
        if block.path is not None:
            _write_new(folder, block.path, block.text, where)
        elif block.language == "diff":
            _run(["git", "apply", "-"], folder, block.text, where)
        elif block.language == "sh":
            script = re.sub(r"^make setup$", _REINSTALL, block.text, flags=re.MULTILINE)
            _run(["bash", "-euo", "pipefail", "-c", script], folder, "", where)


def _write_new(folder: Path, name: str, text: str, where: str) -> None:
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise RecipeError(f"{where}: the path is outside the project")
    if path.exists():
        raise RecipeError(f"{where}: the file exists already; show a diff instead")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _run(command: list[str], folder: Path, given: str, where: str) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "WEIR_"))}
    done = subprocess.run(
        command,
        cwd=folder,
        env=env | {"WEIR_CONFIG": ""},
        input=given,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise RecipeError(f"{where}: exit status {done.returncode}\n{done.stdout}")


def copy_project(folder: Path) -> Path:
    """Makes `folder` a copy of the project with a virtual environment of its own, and returns it."""
    listed = subprocess.run(
        ("git", "ls-files", "-z"), cwd=PROJECT, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (PROJECT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(PROJECT / name, folder / name)
    if (PROJECT / "build").is_dir():
        # Cargo's folder is large, and the library that it built is beside it.
        shutil.copytree(PROJECT / "build", folder / "build", ignore=shutil.ignore_patterns("cargo"))
    subprocess.run(("git", "init", "-q"), cwd=folder, check=True)
    subprocess.run(("git", "add", "-A"), cwd=folder, check=True)
    _make_environment(folder / ".venv", folder)
    return folder


def _make_environment(environment: Path, folder: Path) -> None:
    """A virtual environment that finds the copy's packages before those installed for the project."""
    venv.create(environment, with_pip=False, symlinks=True)
    installed = (PROJECT / ".venv").resolve()  # scripts name the folder that a link leads to
    packages = next((installed / "lib").glob("python*/site-packages"))
    own_packages = environment / packages.relative_to(installed)
    hook = packages / "distutils-precedence.pth"  # Ryu imports distutils; setuptools' own gives no warning
    precedence = hook.read_text() if hook.exists() else ""
    (own_packages / "project.pth").write_text(f"{folder}\n{packages}\n{precedence}\n")
    for program in (installed / "bin").iterdir():
        own = environment / "bin" / program.name
        if own.exists() or program.is_symlink() or not program.is_file():
            continue
        if program.read_bytes().startswith(b"#!" + str(installed).encode()):
            own.write_text(f'#!/bin/sh\nexec {environment}/bin/python {program} "$@"\n')
            own.chmod(0o755)
        else:
            own.symlink_to(program)
