"""What a run of the lab shows: nothing, where its fidelity checks call it void."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest

Row = dict[str, Any]


def shown(row: Row) -> Row:
    """A row of a summary, to be judged; of one that is void neither that a figure holds nor that it fails."""
    return row if row["valid"] else void(row["reasons"])


def void(reasons: object) -> NoReturn:
    """End the test: not passed, not failed (xfailed), with the machine's reasons in pytest's summary."""
    pytest.xfail(f"void, so nothing is shown: {reasons}")
