"""A result folder: metadata.json, and below raw/ a folder for each attempt at each run."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from mininet_topos.errors import BadExperiment, LabError
from mininet_topos.experiments.experiment import Case, Experiment

MOST_ATTEMPTS = 3


def make_folder(folder: Path) -> None:
    """Create the result folder. Raises BadExperiment if it exists already."""
    try:
        folder.mkdir(parents=True)
        (folder / "raw").mkdir()
    except FileExistsError:
        raise _exists(folder) from None
    except OSError as error:
        raise LabError(f"cannot create {folder}: {error.strerror}") from error


@contextmanager
def held_alone(folder: Path) -> Iterator[None]:
    """Hold a result folder, so that no other lab works in it during this context. Raises BadExperiment.

    The kernel releases the lock if the lab is killed.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BadExperiment(
                f"another `weir lab run` works in {folder}: wait for its end, or give another --out"
            ) from None
        yield
    finally:
        os.close(descriptor)


def _exists(folder: Path) -> BadExperiment:
    return BadExperiment(f"{folder} exists already: give another --out; `weir lab run` can --resume")


def require_usable(folder: Path, experiment: Experiment, resume: bool) -> None:
    """Raise BadExperiment if an experiment can neither start in a folder nor, with `resume`, continue."""
    if not (resume and is_begun(folder, experiment)) and folder.exists():
        raise _exists(folder)


def read_metadata(folder: Path) -> dict[str, Any]:
    """Return the metadata of a result folder. Raises BadExperiment if there is none."""
    try:
        metadata: dict[str, Any] = json.loads((folder / "metadata.json").read_text())
    except (OSError, ValueError) as error:
        raise BadExperiment(f"{folder} is not a result folder: {error}") from error
    if "experiment" not in metadata:
        raise BadExperiment(f"{folder} is not a result folder: its metadata.json names no experiment")
    return metadata


def is_begun(folder: Path, experiment: Experiment) -> bool:
    """Whether a folder holds the start of this experiment. Raises BadExperiment if it holds another one."""
    if not (folder / "metadata.json").exists():
        return False
    begun = Experiment.from_json(read_metadata(folder)["experiment"])
    names = [one.name for one in fields(Experiment)]
    if other := [name for name in names if getattr(begun, name) != getattr(experiment, name)]:
        raise BadExperiment(
            f"{folder} holds another experiment, which differs in {', '.join(other)}: give another --out, or "
            f"the file and the options of its start"
        )
    return True


def run_name(case: Case, scheme: str, repeat: int) -> str:
    """Return the name of a run's folders, without the number of the attempt."""
    return f"{case.name}-{scheme}" + (f"-r{repeat}" if repeat > 1 else "")


def attempts(raw: Path, name: str) -> list[Path]:
    """Return the folders of a run's finished attempts, in their order."""
    ended = [path.parent for path in raw.glob(f"{name}-[0-9]*/run.json")]
    own = [path for path in ended if path.name.rpartition("-")[0] == name]
    return sorted(own, key=lambda path: int(path.name.rpartition("-")[2]))


def note_failure(run: Path, attempt: int, reason: str) -> None:
    """Record that an attempt failed. It is void and has no figures, but it counts as an attempt."""
    write_json(run / "run.json", {"attempt": attempt, "valid": False, "failed": True, "reasons": [reason]})


def is_done(raw: Path, name: str) -> bool:
    """Whether a run needs no further attempt: one is valid, or the number of attempts is used up."""
    ended = attempts(raw, name)
    return len(ended) >= MOST_ATTEMPTS or any(read_json(one / "run.json")["valid"] for one in ended)


def read_json(path: Path) -> dict[str, Any]:
    """Return the values of a file that `write_json` has written."""
    values: dict[str, Any] = json.loads(path.read_text())
    return values


def write_json(path: Path, values: Any) -> None:
    """Write values to a file, which is replaced as a whole."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(values, indent=1) + "\n")
    partial.replace(path)
