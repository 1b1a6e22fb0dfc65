"""A test of a run that the lab's fidelity checks declare void neither passes nor fails.

`tests/support/session/void_bound.py` counts such tests.
"""

from __future__ import annotations

from typing import Any

import pytest

Row = dict[str, Any]

VALID, VOID = "valid", "void"

_verdicts: list[str] = []
"""The verdicts on the runs that the present test has asked for."""


def shown(row: Row) -> Row:
    """Return a valid row of a summary. A void row ends the test, as it shows nothing about a figure."""
    return valid([row])[0]


def valid(rows: list[Row]) -> list[Row]:
    """Return the valid ones of some rows of a summary. If all are void, they show nothing about a figure.

    The test then ends: not passed, not failed (xfailed), with the machine's reasons in pytest's summary.
    """
    assert rows, "the summary has no such row"
    found = [row for row in rows if row["valid"]]
    _verdicts.append(VALID if found else VOID)
    if not found:
        pytest.xfail(f"void, so nothing is shown: {[row['reasons'] for row in rows]}")
    return found


def take_verdict() -> str | None:
    """VOID if a run of the present test was void, VALID if all were valid, None if it asked for no run."""
    taken = VOID if VOID in _verdicts else VALID if _verdicts else None
    _verdicts.clear()
    return taken
