"""`weir lab run quick`: the trends of the quick experiments hold, in one run of each case and scheme."""

from __future__ import annotations

import json
import subprocess
import sys
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
PUBLISHED = "sdtcp"
"""Its windows are as published. Its trends are about the median of six repeats: single runs had 0.87 to 0.99
of TCP's goodput, and 0.9 is the bound. Weir's default has the same trends and bounds here."""
TRENDS = [
    (entry.experiment.name, trend) for entry in QUICK for trend in entry.trends if trend.scheme != PUBLISHED
]
Row = dict[str, Any]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lab") / "quick"
    run = (WEIR, "lab", "run", "quick", "--repeat", "1", "--out", str(folder), "--json")
    done = subprocess.run(run, capture_output=True, text=True, timeout=BOUND_S, check=False)
    assert done.returncode in (HOLDING, FAILING), done.stderr
    return folder


def rows(folder: Path, case: str, scheme: str) -> list[Row]:
    """Return the valid rows of a case under a scheme; if every run is void, the test shows nothing."""
    every = json.loads((folder / "summary.json").read_text())
    return valid([row for row in every if (row["case"], row["scheme"]) == (case, scheme)])


@pytest.mark.parametrize(("name", "trend"), TRENDS, ids=[f"{name}: {trend.says}" for name, trend in TRENDS])
def test_the_trend_holds(out: Path, name: str, trend: Trend) -> None:
    verdicts = json.loads((out / name / "trends.json").read_text())
    (ours,) = [one for one in verdicts if one["says"] == trend.says]
    rows(out / name, trend.case, trend.scheme)
    rows(out / name, trend.than_case or trend.case, trend.than or trend.scheme)
    assert ours["verdict"] == HOLDS, sentence(ours)


def test_tcp_and_dctcp_share_one_link_in_one_run(out: Path) -> None:
    both = rows(out / "thesis-3hosts", "long2", "reno+dctcp")[0]
    assert set(both["goodput_by_transport"]) == {"reno", "dctcp"}
    assert rows(out / "thesis-3hosts", "long2", "plain")[0]["marks"] is None
