"""Experiments in TOML files: the project's in this folder, or a user's own.

A file starts with the keys of HEAD, which state the figure that the experiment reproduces. The fields and
cases of an Experiment follow, and then `[[trends]]`: what the figure shows, as bands.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mininet_topos.errors import BadExperiment
from mininet_topos.experiments.experiment import Experiment
from mininet_topos.experiments.trends import Trend, fits, require_value, trend

FOLDER = Path(__file__).parent
HEAD = ("title", "reproduces", "scaling", "published", "ours", "differs")
QUICK = "quick"
ALL = "all"


@dataclass(frozen=True, slots=True)
class Entry:
    """An experiment with its head and its trends.

    ``quick``: it belongs to the set `quick`. ``changes``: fields that differ from the file's (`read`).
    ``left_out``: what the file's trends say that fit none of the changed cases and schemes.
    """

    experiment: Experiment
    head: dict[str, str]
    trends: tuple[Trend, ...]
    quick: bool
    changes: dict[str, Any] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()

    @property
    def about(self) -> dict[str, Any]:
        """The part of the result folder's metadata that comes from the file's head and trends."""
        trends = [asdict(one) for one in self.trends]
        return {"head": self.head, "trends": trends, "changes": self.changes}


def read(path: Path, changes: Mapping[str, Any] | None = None) -> Entry:
    """Return the experiment of a file, with some of its fields changed.

    With changes, a trend that names a missing case or scheme is left out. Raises BadExperiment, which names
    the file and the key.
    """
    changes = dict(changes or {})
    try:
        values = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise BadExperiment(f"cannot read {path}: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise BadExperiment(f"{path} is not TOML: {error}") from error
    head = {key: str(values.pop(key)) for key in HEAD if key in values}
    quick = values.pop(QUICK, False)
    try:
        if not isinstance(quick, bool):
            raise BadExperiment(f"{QUICK} is {quick!r}; want true or false")
        trends = values.pop("trends", [])
        if not isinstance(trends, list):
            raise BadExperiment(f"trends is {trends!r}; want tables [[trends]]")
        experiment = Experiment.from_json({"name": path.stem, **values, **changes})
        if experiment.name in ("", "..") or Path(experiment.name).name != experiment.name:
            raise BadExperiment(f"name is {experiment.name!r}; want the name of a folder, without a path")
        fitting = [one for one in trends if not changes or fits(one, experiment)]
        made = tuple(trend(one, experiment) for one in fitting)
        for one in made:
            require_value(one, experiment)
        left_out = tuple(str(one.get("says")) for one in trends if one not in fitting)
        return Entry(experiment, head, made, quick, changes, left_out)
    except BadExperiment as error:
        where = f"{path} with --set" if changes else f"{path}"
        raise BadExperiment(f"{where}: {error}") from error


def _files() -> list[Path]:
    return sorted(FOLDER.glob("*.toml"))


def entries() -> dict[str, Entry]:
    """Return every experiment of the project by its name."""
    return {path.stem: read(path) for path in _files()}


def chosen(names: Sequence[str], changes: Mapping[str, Any] | None = None) -> list[Entry]:
    """Return experiments by name, by file, or of the sets `quick` and `all`, with some fields changed.

    Raises BadExperiment.
    """
    known = {path.stem: path for path in _files()}
    files: list[Path] = []
    for name in names:
        if name in (ALL, QUICK):
            files += [path for path in known.values() if name == ALL or read(path).quick]
        elif name in known:
            files.append(known[name])
        elif name.endswith(".toml"):
            files.append(Path(name))
        else:
            raise BadExperiment(
                f"no experiment is called {name!r}: use {', '.join((ALL, QUICK, *known))}, or a .toml file"
            )
    return [read(path, changes) for path in files]
