"""`weir config`: the configuration file as a whole, with the sections of all installed packages."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from app_base.stage import StageError, settings_models
from weir_base import settings


def check(path: str) -> dict[str, settings.Section]:
    """Check every section of the file at `path`. Raises SettingsError with all problems."""
    os.environ[settings.VARIABLE] = path
    document = settings.read()
    models = installed_models()
    problems = [
        f"{path}: unknown section [{name}]; remove it or use one of: {', '.join(models)}"
        for name in document
        if name not in models
    ]
    checked = {}
    for name, model in models.items():
        try:
            checked[name] = settings.check(name, model, document, path)
        except settings.SettingsError as error:
            problems.append(str(error))
    if problems:
        raise settings.SettingsError("\n".join(problems))
    return checked


def installed_models() -> dict[str, type[settings.Section]]:
    """The sections of all installed packages. Raises SettingsError if their stages collide."""
    try:
        return settings_models()
    except StageError as error:
        raise settings.SettingsError(str(error)) from error


@click.group()
def config() -> None:
    """Check the configuration file."""


@config.command(name="check")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print every setting in force as JSON.")
def check_command(file: Path, as_json: bool) -> None:
    """Check FILE as a whole: unknown sections and keys, types and ranges. Exit 1 if it is wrong.

    The check fails as well if the stages of two installed controllers collide.
    """
    try:
        sections = check(str(file))
    except settings.SettingsError as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        click.echo(json.dumps({name: section.model_dump(mode="json") for name, section in sections.items()}))
    else:
        click.echo(f"{file}: good")
