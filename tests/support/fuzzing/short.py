"""The short seeded portion of a fuzz that a test runs."""

from __future__ import annotations

import logging

from tests.support.fuzzing.runner import Progress, Target, run

SEED = 1
GROWTH_MAX_KB = 32768


def assert_withstands(name: str, target: Target, inputs: int, accepted: tuple[float, float]) -> None:
    """Assert that inputs cause no crash, no hang and no growth, and that a part of them is accepted.

    ``accepted``: the least and the greatest part. Outside it the fuzz would be trivial.
    """
    progress = Progress(name, SEED)
    logging.disable(logging.CRITICAL)
    try:
        run(target, progress, inputs)
    finally:
        logging.disable(logging.NOTSET)
        target.close()
    assert progress.failures == []
    assert progress.inputs == inputs
    least, most = accepted
    assert least < progress.accepted / inputs < most
    assert progress.growth_kb < GROWTH_MAX_KB
