"""The lab's result folders, as files: ``metadata.json``, ``summary.json``, ``report.html``."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from webui.views import Experiment

MOST_BYTES = 10 * 1024 * 1024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_NEEDED = ("scheme", "workers", "size_bytes", "ideal_ms", "qct_ms")


def experiments(folder: Path) -> list[Experiment]:
    """All result folders, the newest first; what cannot be read as one is left out."""
    try:
        names = sorted(path.name for path in folder.iterdir() if path.is_dir())
    except OSError:
        return []
    found = (experiment(folder, name) for name in names)
    return sorted((one for one in found if one), key=lambda one: one.started, reverse=True)


def experiment(folder: Path, name: str) -> Experiment | None:
    """A result folder; None where it is none."""
    place = folder / name
    if not _NAME.fullmatch(name) or place.is_symlink():
        return None
    metadata, rows = _read(place / "metadata.json"), _read(place / "summary.json")
    if not isinstance(metadata, dict) or not isinstance(rows, list):
        return None
    whole = [row for row in rows if isinstance(row, dict) and all(key in row for key in _NEEDED)]
    return Experiment(
        name=name,
        title=str(whole[0].get("experiment", name)) if whole else name,
        started=str(metadata.get("started", "")),
        schemes=sorted({str(row["scheme"]) for row in whole}),
        rows=whole,
        has_report=(place / "report.html").is_file(),
    )


def _read(path: Path) -> Any:
    try:
        if path.stat().st_size > MOST_BYTES:
            return None
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None
