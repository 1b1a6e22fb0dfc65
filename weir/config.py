"""`weir config`: the configuration file as a whole, composed of every package's section."""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path

import click

from openflow_ext import settings

# section -> the package whose config.py has its model
SECTIONS = {
    "fabric": "fabric_app",
    "flowdb": "flowdb",
    "sccp": "sccp_app",
    "sdtcp": "sdtcp_app",
    "switch": "openflow_ext.switch",
}


def model(section: str) -> type[settings.Section]:
    """The model of a section: the last subclass of Section that its package's config.py defines."""
    module = importlib.import_module(f"{SECTIONS[section]}.config")
    classes = [value for value in vars(module).values() if isinstance(value, type)]
    own = [cls for cls in classes if issubclass(cls, settings.Section) and cls.__module__ == module.__name__]
    return own[-1]


def check(path: str) -> dict[str, settings.Section]:
    """Every section of the file at `path`, checked. Raises SettingsError with all that is wrong."""
    os.environ[settings.VARIABLE] = path
    document = settings.read()
    problems = [
        f"{path}: [{name}] is no section; remove it or use one of: {', '.join(sorted(SECTIONS))}"
        for name in document
        if name not in SECTIONS
    ]
    checked = {}
    for name in SECTIONS:
        try:
            checked[name] = settings.check(name, model(name), document, path)
        except settings.SettingsError as error:
            problems.append(str(error))
    if problems:
        raise settings.SettingsError("\n".join(problems))
    return checked


@click.group()
def config() -> None:
    """Check the configuration file."""


@config.command(name="check")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print every setting in force as JSON.")
def check_command(file: Path, as_json: bool) -> None:
    """Check FILE as a whole: unknown sections and keys, types and ranges. Exit 1 if it is wrong."""
    try:
        sections = check(str(file))
    except settings.SettingsError as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        click.echo(json.dumps({name: section.model_dump(mode="json") for name, section in sections.items()}))
    else:
        click.echo(f"{file}: good")
