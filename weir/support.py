"""`weir support`: one file for a bug report, with versions, settings, counters, logs and sizes of maps.

Every member passes through ``redaction.without_secrets``. A part that cannot be read is replaced by the
reason, so the command works on a broken machine, too.
"""

from __future__ import annotations

import io
import json
import os
import platform
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import partial
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import click
from sqlalchemy.engine import make_url

from flowdb.clock import Clock
from flowdb.config import FlowDbSettings
from flowdb.engine import open_reader
from flowdb.maintenance.stats import stats
from openflow_ext.switch.config import SwitchSettings
from openflow_ext.switch.dataplane.pinned_maps import PinnedMaps
from openflow_ext.switch.show_cli import read_entries, read_ports
from weir.config import installed_models
from weir.redaction import settings_without_secrets, without_secrets
from weir_base.settings import VARIABLE, load, read

UNITS = ("weir-switch", "weir-controller", "weir-web", "weir-follow")
LOG_LINES = 5000
"""The newest lines of each log."""
COMMAND_S = 20.0
_OVS_COLUMNS = "name,datapath_type,fail_mode,protocols"

Part = Callable[[], str]


@click.command()
@click.option(
    "--out", type=click.Path(path_type=Path), help="The file to write (default: weir-support-TIME.tar.gz)."
)
@click.option(
    "--log", "logs", multiple=True, type=click.Path(path_type=Path), help="Add this log; can be repeated."
)
@click.option("--name", help="Name of the data plane (default: [switch] name).")
@click.option("--config", type=click.Path(exists=True, dir_okay=False), help="The configuration file.")
def support(out: Path | None, logs: tuple[Path, ...], name: str | None, config: str | None) -> None:
    """Write a bundle for a bug report: a tar.gz that only you can read.

    It holds versions, settings, port counters, flow entries, the sizes of the maps, table sizes of the flow
    database, and the newest lines of the logs (the journal of Weir's services, and the files of --log).

    Passwords, tokens, keys and cookies are removed. Names of hosts and IP addresses are not: look through the
    bundle before you send it.

    \b
    Examples:
      weir support
      weir support --log /var/log/openvswitch/ovs-vswitchd.log --out /tmp/report.tar.gz
    """
    if config:
        os.environ[VARIABLE] = config
    path = out or Path(f"weir-support-{time.strftime('%Y%m%d-%H%M%S')}.tar.gz")
    try:
        write_bundle(path, parts(name, logs), known_secrets())
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}; give another file with --out") from error
    click.echo(f"{path}: look through it before you send it; it holds addresses of hosts")


def parts(name: str | None, logs: Iterable[Path]) -> dict[str, Part]:
    """What the bundle holds: the name of each member, and the function that gives its text."""
    plane = name or _load_switch().name
    members: dict[str, Part] = {
        "versions.json": lambda: _as_json(versions()),
        "settings.json": lambda: _as_json(settings_in_force()),
        "environment.json": lambda: _as_json(
            sorted(key for key in os.environ if key.startswith(("WEIR_", "OVS_")))
        ),
        "ports.json": lambda: _as_json(_of_maps(plane, read_ports)),
        "entries.json": lambda: _as_json(_of_maps(plane, read_entries)),
        "maps.json": lambda: _as_json(_of_maps(plane, map_sizes)),
        "database.json": lambda: _as_json(database_sizes()),
        "bridges.txt": lambda: _output("ovs-vsctl", "--columns", _OVS_COLUMNS, "list", "bridge"),
        "processes.txt": lambda: _output("ps", "-eo", "pid,etimes,time,rss,nlwp,comm"),
    }
    for unit in UNITS:
        lines = ("-o", "short-iso", "-n", str(LOG_LINES), "-u", unit)
        members[f"logs/{unit}.log"] = partial(_output, "journalctl", "--no-pager", *lines)
    for number, path in enumerate(logs):
        members[f"logs/{number}-{path.name}"] = partial(_tail, path)
    return members


def write_bundle(path: Path, members: dict[str, Part], secrets: Iterable[str]) -> None:
    """Write the bundle with mode 0600. An existing file is not overwritten. Raises OSError."""
    secrets = tuple(secrets)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as bundle:
        for name, part in members.items():
            data = without_secrets(_text_of(part), secrets).encode(errors="replace")
            member = tarfile.TarInfo(f"weir-support/{without_secrets(name, secrets)}")
            member.size, member.mode, member.mtime = len(data), 0o600, int(time.time())
            bundle.addfile(member, io.BytesIO(data))


def _text_of(part: Part) -> str:
    try:
        return part()
    except Exception as error:  # a bundle of a broken machine is worth more than none
        return f"not available: {type(error).__name__}: {error}\n"


def known_secrets() -> set[str]:
    """The passwords of the database's URL. The dashboard's accounts file is never read."""
    found: set[str] = set()
    for url in (os.environ.get("WEIR_DB", ""), _url_of_file()):
        try:
            parsed = make_url(url)
        except Exception:  # noqa: S112 - a text that is not a URL has no password that could be found
            continue
        found |= {str(parsed.password or "")}
        found |= {str(value) for values in parsed.normalized_query.values() for value in values}
    return found - {""}


def _url_of_file() -> str:
    """The database's URL as it is in the configuration file; "" if it cannot be read."""
    try:
        return str(read()["flowdb"]["url"])
    except Exception:  # the bundle reports an invalid configuration
        return ""


def versions() -> dict[str, Any]:
    """Weir, Python, the kernel, Open vSwitch and the installed packages."""
    return {
        "python": platform.python_version(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "openvswitch": _text_of(lambda: _output("ovs-vsctl", "--version")).splitlines()[:1],
        "packages": dict(sorted((one.metadata["Name"], one.version) for one in distributions())),
    }


def settings_in_force() -> dict[str, Any]:
    """Every section of the configuration; an invalid section is replaced by the reason."""
    found: dict[str, Any] = {}
    for name, model in installed_models().items():
        try:
            found[name] = settings_without_secrets(load(name, model).model_dump(mode="json"))
        except Exception as error:
            found[name] = f"not available: {error}"
    return found


def map_sizes(maps: PinnedMaps) -> list[dict[str, Any]]:
    """The entries that each map can hold, and the bytes of a value."""
    rows = [
        {"map": name, "max_entries": held.size(), "value_bytes": held.value_bytes}
        for name, held in maps.maps.items()
    ]
    return sorted(rows, key=lambda row: row["map"])


def database_sizes() -> dict[str, Any]:
    """The rows of each table of the flow database."""
    with open_reader(load("flowdb", FlowDbSettings).database_url).connect() as connection:
        return stats(connection, Clock()).as_dict()


def _of_maps(plane: str, reading: Callable[[PinnedMaps], Any]) -> Any:
    with closing(PinnedMaps(plane)) as maps:
        return reading(maps)


def _load_switch() -> SwitchSettings:
    try:
        return load("switch", SwitchSettings)
    except Exception:  # an invalid configuration is what the bundle reports
        return SwitchSettings()


def _as_json(value: Any) -> str:
    return json.dumps(value, indent=1, default=str) + "\n"


def _output(*argv: str) -> str:
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, timeout=COMMAND_S, errors="replace"
    )
    return done.stdout + done.stderr


def _tail(path: Path) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-LOG_LINES:]) + "\n"
