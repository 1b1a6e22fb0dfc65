"""The experiments that stand in files: `experiments/*.toml`, or one of the user's own.

A file has at its head, in HEAD's keys, which figure it reproduces; then an Experiment's fields and cases;
then, in `[[trends]]`, what its figures say, as bands.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mininet_topos.errors import BadExperiment
from mininet_topos.experiment import Experiment
from mininet_topos.results.trends import Trend, trend

FOLDER = Path(__file__).with_name("experiments")
HEAD = ("title", "reproduces", "scaling", "published", "ours", "differs")
QUICK = "quick"
ALL = "all"


@dataclass(frozen=True, slots=True)
class Entry:
    """An experiment and what it is about. ``quick``: it belongs to the quick set."""

    experiment: Experiment
    head: dict[str, str]
    trends: tuple[Trend, ...]
    quick: bool

    @property
    def about(self) -> dict[str, Any]:
        """What its result folder says of it."""
        return {"head": self.head, "trends": [asdict(one) for one in self.trends]}


def read(path: Path) -> Entry:
    """The experiment of a file. Raises BadExperiment, which names the file."""
    try:
        values = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise BadExperiment(f"cannot read {path}: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise BadExperiment(f"{path} is not TOML: {error}") from error
    head = {key: str(values.pop(key)) for key in HEAD if key in values}
    quick = bool(values.pop(QUICK, False))
    try:
        told = values.pop("trends", [])
        experiment = Experiment.from_json({"name": path.stem, **values})
        return Entry(experiment, head, tuple(trend(one, experiment) for one in told), quick)
    except BadExperiment as error:
        raise BadExperiment(f"{path}: {error}") from error


def entries() -> dict[str, Entry]:
    """Every experiment of the project, by its name."""
    return {path.stem: read(path) for path in sorted(FOLDER.glob("*.toml"))}


def chosen(names: Sequence[str]) -> list[Entry]:
    """The experiments of some names, files, `quick` or `all`. Raises BadExperiment."""
    there = entries()
    found: list[Entry] = []
    for name in names:
        if name in (ALL, QUICK):
            found += [entry for entry in there.values() if entry.quick or name == ALL]
        elif name in there:
            found.append(there[name])
        elif name.endswith(".toml"):
            found.append(read(Path(name)))
        else:
            names_there = ", ".join((ALL, QUICK, *there))
            raise BadExperiment(f"no experiment is called {name!r}: there are {names_there}, or a .toml file")
    return found
