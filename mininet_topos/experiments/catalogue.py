"""Experiments in TOML files: the project's in this folder, or a user's own.

A file starts with the keys of HEAD, which state the figure that the experiment reproduces. The fields and
cases of an Experiment follow, and then `[[trends]]`: what the figure shows, as bands.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mininet_topos.errors import BadExperiment
from mininet_topos.experiments.experiment import Experiment
from mininet_topos.experiments.trends import Trend, require_value, trend

FOLDER = Path(__file__).parent
HEAD = ("title", "reproduces", "scaling", "published", "ours", "differs")
QUICK = "quick"
ALL = "all"


@dataclass(frozen=True, slots=True)
class Entry:
    """An experiment with its head and its trends. ``quick``: it belongs to the set `quick`."""

    experiment: Experiment
    head: dict[str, str]
    trends: tuple[Trend, ...]
    quick: bool

    @property
    def about(self) -> dict[str, Any]:
        """The part of the result folder's metadata that comes from the file's head and trends."""
        return {"head": self.head, "trends": [asdict(one) for one in self.trends]}


def read(path: Path) -> Entry:
    """Return the experiment of a file. Raises BadExperiment, which names the file and the key."""
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
        experiment = Experiment.from_json({"name": path.stem, **values})
        if experiment.name in ("", "..") or Path(experiment.name).name != experiment.name:
            raise BadExperiment(f"name is {experiment.name!r}; want the name of a folder, without a path")
        made = tuple(trend(one, experiment) for one in trends)
        for one in made:
            require_value(one, experiment)
        return Entry(experiment, head, made, quick)
    except BadExperiment as error:
        raise BadExperiment(f"{path}: {error}") from error


def entries() -> dict[str, Entry]:
    """Return every experiment of the project by its name."""
    return {path.stem: read(path) for path in sorted(FOLDER.glob("*.toml"))}


def chosen(names: Sequence[str]) -> list[Entry]:
    """Return experiments by name, by file, or of the sets `quick` and `all`. Raises BadExperiment."""
    known = entries()
    found: list[Entry] = []
    for name in names:
        if name in (ALL, QUICK):
            found += [entry for entry in known.values() if entry.quick or name == ALL]
        elif name in known:
            found.append(known[name])
        elif name.endswith(".toml"):
            found.append(read(Path(name)))
        else:
            raise BadExperiment(
                f"no experiment is called {name!r}: use {', '.join((ALL, QUICK, *known))}, or a .toml file"
            )
    return found
