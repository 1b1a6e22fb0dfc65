"""A test of a run that the lab's fidelity checks declare void neither passes nor fails.

A test that misses its bound in a valid but disturbed run does not fail either: the hypervisor may have
caused it. A test that holds its bound there passes, because such a disturbance improves no figure.

`tests/support/session/void_bound.py` counts such tests.
"""

from __future__ import annotations

from typing import Any

import pytest

Row = dict[str, Any]

VALID, VOID = "valid", "void"

MOST_DISTURBED = 0.01
"""Of a run's time. On a machine without other work, hypervisor and stalls take less."""

_verdicts: list[str] = []
"""The verdicts on the runs that the present test has asked for."""
_disturbed: list[str] = []
"""What disturbed the valid ones of them."""


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
    _disturbed.extend(filter(None, map(_disturbance, found)))
    return found


def _disturbance(row: Row) -> str:
    exposure = row.get("exposure") or {}
    stolen, stalled = exposure.get("stolen") or 0.0, exposure.get("one_stalled") or 0.0
    if max(stolen, stalled) <= MOST_DISTURBED:
        return ""
    return f"{row['case']}, {row['scheme']}: hypervisor {stolen:.1%}, one CPU stalled {stalled:.1%}"


def take_verdict() -> str | None:
    """VOID if a run of the present test was void, VALID if all were valid, None if it asked for no run."""
    taken = VOID if VOID in _verdicts else VALID if _verdicts else None
    _verdicts.clear()
    return taken


def take_disturbances() -> list[str]:
    """What disturbed the valid runs of the present test by more than MOST_DISTURBED."""
    taken = _disturbed.copy()
    _disturbed.clear()
    return taken
