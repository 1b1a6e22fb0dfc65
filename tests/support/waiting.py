"""Waiting for a state: poll until it is reached, or fail with the last state that was seen.

A test that sleeps for a fixed time is slow on an idle machine and fails on a busy one. The deadline here only
bounds how long a failing test takes, so it is generous. A test that measures elapsed time must do so itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

State = TypeVar("State")
DEADLINE_S = 60.0
"""How long tests wait for a state, a process or an answer: many times what a busy machine needs."""
_INTERVAL_S = 0.02


def wait_until(
    observe: Callable[[], State],
    what: str,
    accept: Callable[[State], object] = bool,
    timeout_s: float = DEADLINE_S,
) -> State:
    """Poll ``observe`` until ``accept`` holds for its result, and return that result.

    ``accept`` defaults to the truth of the result. If it is given, ``observe`` can return the state itself,
    which the message of a failure then shows. Raises AssertionError with ``what`` and the last state when the
    deadline has passed.
    """
    deadline = time.monotonic() + timeout_s
    while not accept(state := observe()):
        _check(deadline, timeout_s, what, state)
        time.sleep(_INTERVAL_S)
    return state


async def wait_until_async(
    observe: Callable[[], State],
    what: str,
    accept: Callable[[State], object] = bool,
    timeout_s: float = DEADLINE_S,
) -> State:
    """As ``wait_until``, while the tasks of the event loop go on."""
    deadline = time.monotonic() + timeout_s
    while not accept(state := observe()):
        _check(deadline, timeout_s, what, state)
        await asyncio.sleep(_INTERVAL_S)
    return state


def _check(deadline: float, timeout_s: float, what: str, state: object) -> None:
    assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}; last state seen: {state!r}"
