"""Pages of the documentation site that are made when the site is built (an MkDocs hook).

- `index.md` is the project's README, with its links changed to lead from the site.
- `reference/settings.md` comes from the sections' pydantic models.
- `reference/commands.md` comes from the click commands.
- `assets/mermaid.tiny.js`, which draws the diagrams, comes from `build/`, where `make docs` has put it.

Each page is also checked for commands, settings and paths that do not exist (`doc_checks.py`).

`python tools/docs.py settings` and `python tools/docs.py commands` print a reference page.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from weir import cli
from weir.config import installed_models
from weir_base.paths import build_dir
from weir_base.settings import Section

PROJECT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(PROJECT))  # MkDocs loads this file by its path

from tools import doc_checks  # noqa: E402 - found by that path

log = logging.getLogger(f"mkdocs.hooks.{__name__}")
LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")


def settings_page() -> str:
    """Every section, key, type, limit and default of the configuration file, as Markdown."""
    lines = [
        "# Settings",
        "",
        "The configuration is one TOML file. `WEIR_CONFIG` names it. If the variable is not set,",
        "`/etc/weir/weir.toml` is the file if it exists. Each section and key is optional.",
        "`weir config check FILE` checks a file against this page.",
    ]
    for name, model in sorted(installed_models().items()):
        lines += _section(f"[{name}]", model)
    return "\n".join(lines) + "\n"


def _section(title: str, model: type[Section]) -> Iterator[str]:
    yield from ("", f"## `{title}`", "", _sentence(model.__doc__ or ""), "")
    yield from ("| key | type | default | meaning |", "|---|---|---|---|")
    for name, field in model.model_fields.items():
        cells = (f"`{name}`", _type(field), _default(field), _sentence(field.description or ""))
        yield "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
    for name, field in model.model_fields.items():
        for part in _models(field.annotation):
            yield from _section(f"[{title.strip('[]')}.{name}]", part)


def _sentence(text: str) -> str:
    """Docstring or description as a sentence, in Markdown."""
    text = " ".join(text.replace("``", "`").split())
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!")) else ".") if text else ""


def _models(annotation: Any) -> Iterator[type[Section]]:
    """The sections within a field's type."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


NAMES = {bool: "true or false", float: "number", int: "integer", Path: "path", str: "text"}
LIMITS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}


def _type(field: FieldInfo) -> str:
    """A field's type and limits, in words."""
    found = [
        (words, getattr(limit, name, None)) for limit in field.metadata for name, words in LIMITS.items()
    ]
    return ", ".join(
        [_named(field.annotation), *(f"{words} {value:,}" for words, value in found if value is not None)]
    )


def _named(annotation: Any) -> str:
    parts = get_args(annotation)
    if annotation is type(None):
        return "none"
    if not parts:
        if isinstance(annotation, type) and issubclass(annotation, Section):
            return "table"
        return NAMES.get(annotation, "network" if "Network" in str(annotation) else str(annotation))
    if get_origin(annotation) is Literal:
        return " or ".join(f'`"{choice}"`' for choice in parts)
    if get_origin(annotation) is Annotated:
        return _named(parts[0])
    if get_origin(annotation) is tuple:
        return f"list of {_named(parts[0])}"
    return " or ".join(dict.fromkeys(_named(part) for part in parts))


def _default(field: FieldInfo) -> str:
    if field.default is PydanticUndefined:
        return "computed" if field.default_factory else "required"
    value = field.default
    if isinstance(value, Section):
        return "see below"
    if value is None or value == ():
        return "none"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def commands_page() -> str:
    """The help of `weir` and of each of its commands, as Markdown."""
    lines = ["# Commands", "", "The help of each command, as `weir COMMAND --help` prints it."]
    for path, command in all_commands():
        context = click.Context(command, info_name=" ".join(path), max_content_width=100, terminal_width=100)
        lines += ["", f"## `{' '.join(path)}`", "", "```text", command.get_help(context).rstrip(), "```"]
    return "\n".join(lines) + "\n"


def all_commands(
    command: click.Command = cli.weir, path: tuple[str, ...] = ("weir",)
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """A command and all commands below it, each with the words that call it."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None and not found.hidden:
                yield from all_commands(found, (*path, name))


def index_page() -> str:
    """The README as the site's first page. Links to files outside docs/ become plain text."""

    def moved(link: re.Match[str]) -> str:
        text, target = link.groups()
        if "://" in target:
            return link.group()
        return f"[{text}]({target.removeprefix('docs/')})" if target.startswith("docs/") else text

    return LINK.sub(moved, (PROJECT / "README.md").read_text())


MERMAID = "assets/mermaid.tiny.js"
GENERATED = {
    "index.md": index_page,
    "reference/settings.md": settings_page,
    "reference/commands.md": commands_page,
}


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """MkDocs calls this once it has found the pages in docs/."""
    for name, page in GENERATED.items():
        files.append(File.generated(config, name, content=page()))
    mermaid = build_dir() / Path(MERMAID).name
    if not mermaid.is_file():
        raise PluginError(f"{mermaid} is missing: make it with `make docs`")
    files.append(File.generated(config, MERMAID, abs_src_path=str(mermaid)))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: object) -> None:
    """MkDocs calls this for each page. A warning ends a strict build."""
    if page.file.src_uri not in GENERATED:
        for problem in doc_checks.problems(markdown):
            log.warning("Doc file '%s' names something that does not exist: %s", page.file.src_uri, problem)


if __name__ == "__main__":
    print({"settings": settings_page, "commands": commands_page}[sys.argv[1]](), end="")
