"""What a run has written, as dictionaries: its own record (run.json) and those of its programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mininet_topos.errors import ProgramFailed

Record = dict[str, Any]


def read_records(path: Path) -> Iterator[Record]:
    """The records of a file of JSON lines. Raises ProgramFailed at a line that is none."""
    with open(path) as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield json.loads(line)
            except ValueError as error:
                raise ProgramFailed(f"{path}, line {number}: not a record: {line[:60]!r}") from error


def read_run(run: Path) -> tuple[Record, list[Record]]:
    """A run's own record, and what its traffic programs wrote."""
    return json.loads((run / "run.json").read_text()), list(read_records(run / "traffic.jsonl"))


def queries(records: list[Record]) -> list[Record]:
    """The records of the queries, in their order."""
    return [record for record in records if record["event"] == "query"]
