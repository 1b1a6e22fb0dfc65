"""`weir config`: the configuration file as a whole, composed of every package's section."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from fabric_app.config import FabricSettings
from flowdb.config import FlowDbSettings
from openflow_ext import settings
from openflow_ext.switch.config import SwitchSettings
from sccp_app.config import SccpSettings
from sdtcp_app.config import SdtcpSettings
from telemetry_app.config import TelemetrySettings
from webui.config import WebSettings

SECTIONS: dict[str, type[settings.Section]] = {
    "fabric": FabricSettings,
    "flowdb": FlowDbSettings,
    "sccp": SccpSettings,
    "sdtcp": SdtcpSettings,
    "switch": SwitchSettings,
    "telemetry": TelemetrySettings,
    "web": WebSettings,
}


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
    for name, model in SECTIONS.items():
        try:
            checked[name] = settings.check(name, model, document, path)
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
