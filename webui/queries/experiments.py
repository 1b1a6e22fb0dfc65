"""The lab's result folders, as files: ``metadata.json``, ``summary.json``, ``report.html``."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from webui.views import Experiment

MAX_BYTES = 10 * 1024 * 1024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_NEEDED = ("scheme", "workers", "size_bytes", "ideal_ms", "qct_ms")


def experiments(folder: Path) -> list[Experiment]:
    """All result folders, newest first, without folders that cannot be read."""
    try:
        names = sorted(path.name for path in folder.iterdir() if path.is_dir())
    except OSError:
        return []
    found = (experiment(folder, name) for name in names)
    return sorted((one for one in found if one), key=lambda one: one.started, reverse=True)


def experiment(folder: Path, name: str) -> Experiment | None:
    """A result folder; None if it is not a valid one."""
    place = folder / name
    if not _NAME.fullmatch(name) or place.is_symlink():
        return None
    metadata, rows = _read(place / "metadata.json"), _read(place / "summary.json")
    if not isinstance(metadata, dict) or not isinstance(rows, list):
        return None
    valid_rows = [row for row in rows if isinstance(row, dict) and all(key in row for key in _NEEDED)]
    return Experiment(
        name=name,
        title=str(valid_rows[0].get("experiment", name)) if valid_rows else name,
        started=str(metadata.get("started", "")),
        schemes=sorted({str(row["scheme"]) for row in valid_rows}),
        rows=valid_rows,
        has_report=(place / "report.html").is_file(),
    )


def _read(path: Path) -> Any:
    try:
        if path.stat().st_size > MAX_BYTES:
            return None
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None
