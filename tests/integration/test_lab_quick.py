"""`weir lab run quick`: the trends of the quick experiments hold, in one run of each case and scheme."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mininet_topos.experiments import catalogue
from mininet_topos.experiments.trends import Trend
from mininet_topos.results.verdicts import HOLDS, sentence
from tests.support.lab.void_runs import valid

WEIR = str(Path(sys.executable).with_name("weir"))
BOUND_S = 900
HOLDING, FAILING = 0, 3
pytestmark = pytest.mark.timeout(BOUND_S + 60)
QUICK = catalogue.chosen([catalogue.QUICK])
TRENDS = [(entry.experiment.name, trend) for entry in QUICK for trend in entry.trends]
Row = dict[str, Any]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lab_run(tmp_path_factory.mktemp("lab") / "quick", catalogue.QUICK, repeats=1)


@pytest.fixture(scope="module")
def decider(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A new result folder of an experiment, with three repeats. It is made once."""

    @functools.cache
    def decide(name: str) -> Path:
        return lab_run(tmp_path_factory.mktemp("lab") / name, name, repeats=3)

    return decide


def lab_run(folder: Path, name: str, repeats: int) -> Path:
    run = (WEIR, "lab", "run", name, "--repeat", str(repeats), "--out", str(folder), "--json")
    done = subprocess.run(run, capture_output=True, text=True, timeout=BOUND_S, check=False)
    assert done.returncode in (HOLDING, FAILING), done.stderr
    return folder


def rows(folder: Path, case: str, scheme: str) -> list[Row]:
    """Return the valid rows of a case under a scheme; if every run is void, the test shows nothing."""
    every = json.loads((folder / "summary.json").read_text())
    return valid([row for row in every if (row["case"], row["scheme"]) == (case, scheme)])


def verdict_on(folder: Path, trend: Trend) -> dict[str, Any]:
    """The verdict on a trend in valid runs."""
    rows(folder, trend.case, trend.scheme)
    rows(folder, trend.than_case or trend.case, trend.than or trend.scheme)
    (found,) = [one for one in json.loads((folder / "trends.json").read_text()) if one["says"] == trend.says]
    return dict(found)


@pytest.mark.parametrize(("name", "trend"), TRENDS, ids=[f"{name}: {trend.says}" for name, trend in TRENDS])
def test_the_trend_holds(out: Path, decider: Callable[[str], Path], name: str, trend: Trend) -> None:
    """One run may meet other work on the machine. If the trend fails there, three more runs decide."""
    ours = verdict_on(out / name, trend)
    if ours["verdict"] != HOLDS:
        ours = verdict_on(decider(name) / name, trend)
    assert ours["verdict"] == HOLDS, sentence(ours)


def test_tcp_and_dctcp_share_one_link_in_one_run(out: Path) -> None:
    both = rows(out / "thesis-3hosts", "long2", "reno+dctcp")[0]
    assert set(both["goodput_by_transport"]) == {"reno", "dctcp"}
    assert rows(out / "thesis-3hosts", "long2", "plain")[0]["marks"] is None
