"""Faults of parts under load: a short portion of `python -m bench.faults`."""

from __future__ import annotations

import random
from itertools import islice
from pathlib import Path

import pytest

from tests.support.faults.trial import PAUSE_S, all_is_over, begin, order, visit
from tests.support.faults.world import world

pytestmark = pytest.mark.beside_others

SEED = 3
KINDS = ("agent killed", "writer killed", "database locked", "disk full", "clocks ahead and behind")
"""The faults after which all is normal soon. A new controller takes up to 17 s."""
VISITS = 3


def test_faults_lose_nothing_that_was_promised(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    with world(tmp_path, "ryu", "sdtcp") as now:
        begin(now)
        names = islice(order(rng, KINDS), VISITS)
        visits = [visit(now, name, round(rng.uniform(*PAUSE_S), 1)) for name in names]
        last = all_is_over(now)
    print(visits)
    assert [(one.fault, one.violations) for one in visits if one.violations] == []
    assert last == []
