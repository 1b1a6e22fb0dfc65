"""Trends: bands on medians of valid repeats; verdicts in the folder, the report, on the terminal."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mininet_topos.cli import experiments as cli_experiments
from mininet_topos.cli import lab
from mininet_topos.errors import BadExperiment
from mininet_topos.experiments import catalogue
from mininet_topos.experiments.trends import GROUPS, VALUES, Trend, trend
from mininet_topos.results.slowdown import CLASSES
from mininet_topos.results.summary import summarise
from mininet_topos.results.verdicts import FAILS, HOLDS, NOT_SHOWN, judge, sentence
from mininet_topos.running import experiment_runner as running
from tests.support.lab.examples import EXPERIMENT_FILE, one_case
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
def test_every_experiment_has_trends(name: str) -> None:
    assert catalogue.entries()[name].trends


def test_the_values_that_a_trend_may_use_are_those_of_the_rows(tmp_path: Path) -> None:
    write_folder(tmp_path, THREE_SCHEMES)
    for row in summarise(tmp_path):
        numbers = {name for name, value in row.items() if type(value) in (int, float)}
        assert numbers <= set(VALUES) <= set(row)
        groups = {name: value for name, value in row.items() if value and isinstance(value, dict)}
        assert set(groups) - {"goodput_by_transport"} <= set(GROUPS) <= set(row)
        assert all(set(values) <= set(GROUPS[name]) for name, values in groups.items())
    assert {name.partition(".")[0] for name in GROUPS["slowdown"]} == set(CLASSES)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("dorps", "rows have no value 'dorps'; did you mean 'drops'?"),
        ("qct_ms.p90", "no value 'qct_ms.p90'; did you mean 'qct_ms.p"),
        ("qct_ms", "rows have no value 'qct_ms'; did you mean"),
        ("goodput_by_transport.dctcp", "rows have no value 'goodput_by_transport.dctcp'; did you mean"),
        ("xyz", "rows have no value 'xyz'; use one such as"),
    ],
)
def test_a_trend_with_a_mistyped_value_is_refused_before_the_first_run(
    value: str, message: str, tmp_path: Path
) -> None:
    """Otherwise the experiment runs for hours, and nothing is shown."""
    path = tmp_path / "mine.toml"
    band = "figure = '1', says = 's', scheme = 'plain', most = 0"
    path.write_text(EXPERIMENT_FILE + f"trends = [{{ {band}, value = '{value}' }}]\n")
    with pytest.raises(BadExperiment, match=re.escape(message)):
        catalogue.read(path)
    path.write_text(path.read_text().replace(f"'{value}'", "'goodput_by_transport.reno'"))
    assert len(catalogue.read(path).trends) == 1


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


@pytest.mark.parametrize(
    ("given", "says", "status"),
    [
        (TRENDS[0], "holds", 0),
        (TRENDS[0] | {"most": 6}, "does not hold", 3),
        (TRENDS[2], "not shown", 3),
    ],
)
def test_a_trend_that_does_not_hold_or_is_not_shown_sets_exit_status_3(
    given: dict[str, Any], says: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(experiment: Any, folder: Path, *_: object) -> None:
        write_folder(folder, THREE_SCHEMES, trends=[given])

    leave_out_the_plots(monkeypatch)
    monkeypatch.setattr(cli_experiments, "require_machine", lambda: None)
    monkeypatch.setattr(running, "run_experiment", run)
    done = CliRunner().invoke(lab, ["run", "sdtcp-bursts", "--out", str(tmp_path), "--json"])
    assert done.exit_code == status, done.output
    assert f": {says}\n" in done.stderr
