"""Trends: bands on medians of valid repeats; verdicts in the folder, the report, on the terminal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mininet_topos.cli import experiments as cli_experiments
from mininet_topos.cli import lab
from mininet_topos.errors import BadExperiment
from mininet_topos.experiments import catalogue
from mininet_topos.experiments.trends import Trend, trend
from mininet_topos.results.summary import summarise
from mininet_topos.results.verdicts import FAILS, HOLDS, NOT_SHOWN, judge, sentence
from mininet_topos.running import experiment_runner as running
from tests.support.lab.examples import one_case
from tests.support.lab.result_folders import THREE_SCHEMES, leave_out_the_plots, write_folder


def row(case: str, scheme: str, drops: int, valid: bool = True, **more: Any) -> dict[str, Any]:
    return {"case": case, "scheme": scheme, "drops": drops, "valid": valid, "fct_ms": {}} | more


ROWS = [
    *(row("A", "plain", drops) for drops in (90, 110, 100)),
    *(row("A", "sdtcp", drops) for drops in (5, 15)),
    row("A", "sccp", 0, valid=False),
    row("B", "plain", 0, fct_ms={"max": 70.0}),
    *(row("B", "sdtcp", drops) for drops in (0, 0, 3)),
    row("B", "sdtcp", 9, valid=False),
    *(row("B", "sccp", 0) for _ in range(3)),
]


@pytest.mark.parametrize(
    ("changes", "found", "verdict"),
    [
        ({"scheme": "plain", "least": 100, "most": 100}, 100, HOLDS),
        ({"scheme": "plain", "least": 101}, 100, FAILS),
        ({"scheme": "sdtcp", "than": "plain", "most": 0.1}, 0.1, HOLDS),
        ({"scheme": "sdtcp", "than": "plain", "most": 0.09}, 0.1, FAILS),
        ({"scheme": "sccp", "most": 0}, None, NOT_SHOWN),
        ({"scheme": "sdtcp", "than": "sccp", "most": 1}, None, NOT_SHOWN),
        ({"scheme": "plain", "than_case": "B", "most": 1}, None, NOT_SHOWN),  # nothing to divide by
        ({"case": "B", "scheme": "plain", "than_case": "A", "most": 0}, 0, HOLDS),
        ({"case": "B", "scheme": "plain", "value": "fct_ms.max", "least": 70}, 70, HOLDS),
        ({"scheme": "plain", "value": "fct_ms.max", "least": 70}, None, NOT_SHOWN),
        ({"case": "B", "scheme": "sdtcp", "most": 0}, 3, FAILS),  # it happens in one repeat of three
        ({"case": "B", "scheme": "sdtcp", "most": 1}, 0, HOLDS),
        ({"case": "B", "scheme": "sccp", "most": 0}, 0, HOLDS),
    ],
)
def test_a_trend_is_judged_by_the_median_of_valid_repeats(
    changes: dict[str, Any], found: float | None, verdict: str
) -> None:
    made = Trend(**({"figure": "1", "says": "s", "case": "A", "value": "drops"} | changes))
    judged = judge(made, ROWS)
    assert (judged["found"], judged["verdict"]) == (found, verdict)


def test_two_schemes_whose_flows_did_not_end_show_no_ratio() -> None:
    rows = [
        {"case": "A", "scheme": scheme, "valid": True, "fct_ms": {"p99": p99}}
        for scheme, p99 in (("plain", None), ("sccp", None), ("dctcp", 5.0))
    ]
    found = {
        than: judge(
            Trend(figure="1", says="s", case="A", scheme="plain", value="fct_ms.p99", than=than, least=2),
            rows,
        )["verdict"]
        for than in ("sccp", "dctcp")
    }
    assert found == {"sccp": NOT_SHOWN, "dctcp": HOLDS}


def test_long_flows_that_did_not_recover_in_time_fail_a_trend() -> None:
    rows = [
        {"case": "A", "scheme": "plain", "valid": True, "background_mbps": {"before": 9}, "recovery_s": found}
        for found in (0.1, None, None)
    ]
    judged = judge(Trend(figure="1", says="s", case="A", scheme="plain", value="recovery_s", most=1), rows)
    assert (judged["found"], judged["verdict"]) == (None, FAILS)
    assert sentence(judged).endswith(": never (most 1)")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scheme": "nosuch"}, "'s': the experiment has no scheme 'nosuch'; use one of plain"),
        ({"than": "nosuch"}, "has no scheme 'nosuch'; use one of plain"),
        ({"case": "nosuch"}, "has no case 'nosuch'; use one of A"),
        ({"than_case": "nosuch"}, "has no case 'nosuch'; use one of A"),
        ({"most": None}, "has no band: give `least`, `most`, or both"),
        ({"nonsense": 1}, "trend 's': unknown key 'nonsense'; the keys are figure, says"),
    ],
)
def test_a_bad_trend_is_refused(changes: dict[str, Any], message: str) -> None:
    values = {"figure": "1", "says": "s", "scheme": "plain", "value": "drops", "most": 1}
    assert trend(values, one_case()).case == "A"
    with pytest.raises(BadExperiment, match=message):
        trend(values | changes, one_case())


def test_with_several_cases_a_trend_must_name_one() -> None:
    with pytest.raises(BadExperiment, match="'case'"):
        trend({"figure": "1", "says": "s", "scheme": "plain", "value": "drops", "most": 1}, THREE_SCHEMES)


@pytest.mark.parametrize("name", sorted(catalogue.entries()))
def test_every_trend_uses_a_value_that_rows_have(name: str, tmp_path: Path) -> None:
    entry = catalogue.entries()[name]
    assert entry.trends
    write_folder(tmp_path, THREE_SCHEMES)
    known = set(summarise(tmp_path)[0])
    assert {one.value.partition(".")[0] for one in entry.trends} <= known


TRENDS = (
    {"figure": "7", "says": "it drops 7", "case": "A", "scheme": "plain", "value": "drops", "most": 7},
    {"figure": "8", "says": "<none> drops", "case": "A", "scheme": "plain", "value": "drops", "most": 6},
    {"figure": "9", "says": "void", "case": "C", "scheme": "sdtcp", "value": "drops", "most": 7},
)


def test_verdicts_are_in_the_folder_in_the_report_and_on_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_out_the_plots(monkeypatch)
    write_folder(tmp_path, THREE_SCHEMES, trends=TRENDS)
    done = CliRunner().invoke(lab, ["report", str(tmp_path), "--json"])
    assert done.exit_code == 0, done.output
    assert len(json.loads(done.stdout)) == 9
    verdicts = [judged["verdict"] for judged in json.loads((tmp_path / "trends.json").read_text())]
    assert verdicts == [HOLDS, FAILS, NOT_SHOWN]
    page = (tmp_path / "report.html").read_text()
    assert "&lt;none&gt; drops" in page
    assert page.count("<td>does not hold</td>") == page.count("<td>not shown</td>") == 1
    lines = done.stderr.splitlines()
    assert lines[0].endswith(", figure 7: it drops 7: 7 (most 7): holds")
    assert lines[2].endswith(", figure 9: void: no valid run (most 7): not shown")


@pytest.mark.parametrize(("most", "status"), [(7, 0), (6, 3)])
def test_a_trend_that_does_not_hold_sets_exit_status_3(
    most: int, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(experiment: Any, folder: Path, *_: object) -> None:
        write_folder(folder, THREE_SCHEMES, trends=[TRENDS[0] | {"most": most}])

    leave_out_the_plots(monkeypatch)
    monkeypatch.setattr(cli_experiments, "require_machine", lambda: None)
    monkeypatch.setattr(running, "run_experiment", run)
    done = CliRunner().invoke(lab, ["run", "sdtcp-bursts", "--out", str(tmp_path), "--json"])
    assert done.exit_code == status, done.output
    assert ("does not hold" in done.stderr) == bool(status)
