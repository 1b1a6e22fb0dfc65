"""Statistics of repeats: intervals, the null test, planted effects, the order of the runs."""

from __future__ import annotations

import json
import math
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mininet_topos.cli import lab
from mininet_topos.experiments.experiment import Case, Experiment
from mininet_topos.results.compare import caveats, compare, findings
from mininet_topos.results.comparisons import (
    HIGHER,
    LOWER,
    NO_INTERVAL,
    NOT_SHOWN,
    by_chance,
    comparisons,
    different,
    median_text,
    medians,
)
from mininet_topos.results.statistics import LEAST_REPEATS, Interval, median_interval, ratio_interval
from mininet_topos.results.summary import summarise, value_of
from mininet_topos.running.order import blocks
from tests.support.lab.examples import one_case
from tests.support.lab.result_folders import THREE_SCHEMES, write_folder, write_run

REPEATS = 6


def row(scheme: str, repeat: int, p50: float, case: str = "A", **more: Any) -> dict[str, Any]:
    times = {"qct_ms": {"p50": p50}, "fct_ms": {}, "goodput_mbps": None}
    return {"experiment": "e", "case": case, "scheme": scheme, "repeat": repeat, "valid": True} | times | more


def runs(scheme: str, value: Callable[[int], float], repeats: int = REPEATS) -> list[dict[str, Any]]:
    return [row(scheme, repeat, value(repeat)) for repeat in range(1, repeats + 1)]


def test_an_interval_lies_around_the_median_and_is_always_the_same() -> None:
    found = median_interval([5.0, 1.0, 4.0, 2.0, 3.0, 6.0])
    assert found is not None
    assert found.median == 3.5
    assert 1 <= found.low < 2 < 5 < found.high <= 6
    assert found == median_interval([5.0, 1.0, 4.0, 2.0, 3.0, 6.0])
    assert median_interval([7.0] * 6) == Interval(7, 7, 7)


def test_fewer_than_six_repeats_have_no_interval() -> None:
    assert median_interval([1.0] * (LEAST_REPEATS - 1)) is None
    assert ratio_interval([(1, 2)] * 5 + [(0, 2)]) is None
    few = runs("plain", lambda _: 100, 5) + runs("sccp", lambda _: 10, 5)
    assert [one["verdict"] for one in comparisons(few)] == [NO_INTERVAL]
    assert [(one["repeats"], one["median"], one["low"]) for one in medians(few)] == [
        (5, 100, None),
        (5, 10, None),
    ]


def test_an_exchange_of_the_schemes_inverts_the_ratio() -> None:
    pairs = [(100.0 + n, 50.0 + n * n) for n in range(6)]
    one, other = ratio_interval(pairs), ratio_interval([(b, a) for a, b in pairs])
    assert one is not None
    assert other is not None
    assert (one.median, one.low, one.high) == pytest.approx(
        (1 / other.median, 1 / other.high, 1 / other.low), rel=0.02
    )


def test_an_interval_covers_the_true_median_as_often_as_stated() -> None:
    draw = random.Random(3)
    samples = [[draw.lognormvariate(0, 0.3) for _ in range(REPEATS)] for _ in range(300)]
    missed = sum(interval.excludes(1.0) for one in samples if (interval := median_interval(one)))
    assert missed <= 0.07 * len(samples)


def test_null_the_same_scheme_under_two_names_rarely_differs() -> None:
    """In each of 20 comparisons both names draw from one distribution, with a drift that pairs share."""
    draw = random.Random(1)
    rows = []
    for number in range(20):
        for repeat in range(1, REPEATS + 1):
            drift = draw.uniform(1, 2)
            rows += [
                row(name, repeat, 100 * drift * draw.lognormvariate(0, 0.1), case=f"c{number}")
                for name in ("plain", "plain@2")
            ]
    found = comparisons(rows)
    assert len(found) == 20
    assert sum(one["verdict"] != NOT_SHOWN for one in found) <= 3


def test_with_many_verdicts_the_share_that_chance_makes_is_stated() -> None:
    rows = [
        row(scheme, repeat, value + repeat, case=f"c{number}")
        for number in range(20)
        for repeat in range(1, REPEATS + 1)
        for scheme, value in (("plain", 100), ("sccp", 50))
    ]
    (line,) = by_chance(comparisons(rows))
    assert line.startswith(
        "20 intervals of 95% were judged: without any real difference, chance makes up to about 1 "
    )
    assert by_chance(comparisons(rows[12:])) == []
    few = [one for one in rows if one["repeat"] > 1]
    assert by_chance(comparisons(few)) == []  # no interval, no verdict
    judged = [{"verdict": NOT_SHOWN, "figure": "drops"}] * 60
    assert findings(judged)[-1].startswith("60 intervals of 95% were judged")


def test_a_planted_effect_of_a_tenth_is_always_found_despite_a_shared_drift() -> None:
    draw = random.Random(2)
    rows = []
    for number in range(20):
        for repeat in range(1, REPEATS + 1):
            drift = draw.uniform(1, 2)
            for name, effect in (("plain", 1.0), ("plain@2", 1.1)):
                value = 100 * drift * effect * draw.lognormvariate(0, 0.02)
                rows.append(row(name, repeat, value, case=f"c{number}"))
    found = comparisons(rows)
    assert [one["verdict"] for one in found] == [HIGHER] * 20
    assert all(1.05 < one["ratio"] < 1.15 for one in found)


def test_only_valid_repeats_form_pairs() -> None:
    rows = [*runs("plain", lambda n: 100 + n, 7), *runs("sccp", lambda n: 50 + n, 7)]
    rows[1]["valid"] = False
    (found,) = comparisons(rows)
    assert (found["pairs"], found["verdict"]) == (6, LOWER)
    assert different(rows)[0].startswith("A, QCT p50: SCCP is lower than plain TCP: x 0.5")
    rows[2]["valid"] = False
    assert different(rows) == []


def test_a_figure_of_flows_that_did_not_end_is_shown_and_has_no_verdict() -> None:
    """The median over the repeats in which they ended would flatter the scheme that starves flows.

    Without a row, the scheme would be missing from the figure in which it is worst.
    """
    rows = [
        row("plain", repeat, 50, fct_ms={"p50": 5.0, "p99": None if repeat == 2 else 9.0})
        for repeat in range(1, REPEATS + 1)
    ]
    rows += [row("sccp", repeat, 50, fct_ms={"p50": 5.0, "p99": 90.0}) for repeat in range(1, REPEATS + 1)]
    assert value_of(rows[1], "fct_ms.p99") == math.inf
    shown = {(one["scheme"], one["figure"]): median_text(one) for one in medians(rows)}
    assert shown["plain", "FCT p99"] == "infinite in 1 of 6"
    assert {("plain", "FCT p50"), ("sccp", "FCT p99")} < shown.keys()
    assert "infinite" not in shown["sccp", "FCT p99"]
    assert {one["figure"] for one in comparisons(rows)} == {"QCT p50", "FCT p50"}


def test_every_scheme_runs_once_in_each_repeat_in_an_order_that_the_seed_decides() -> None:
    experiment = one_case(schemes=("plain", "rto5", "cubic", "ecn"), repeats=8)
    order = blocks(experiment)
    assert [repeat for repeat, _ in order] == list(range(1, 9))
    assert all(sorted(names) == ["cubic", "ecn", "plain", "rto5"] for _, names in order)
    assert len({names for _, names in order}) > 3
    assert blocks(experiment) == order != blocks(replace(experiment, seed=2))
    assert blocks(replace(experiment, repeats=1)) == [(1, experiment.schemes)]


def _write_repeats(folder: Path) -> Experiment:
    case = Case("A", "4 workers", workers=4, queries=4)
    experiment = replace(THREE_SCHEMES, cases=(case,), schemes=("plain", "sccp"), repeats=REPEATS)
    metadata = {"experiment": experiment.to_json(), "git": {"commit": "abc", "changed": []}, "sysctl": {}}
    (folder / "metadata.json").write_text(json.dumps(metadata))
    for scheme, times in (("plain", 2.0), ("sccp", 1.0)):
        for repeat in range(1, REPEATS + 1):
            name = scheme + (f"-r{repeat}" if repeat > 1 else "")
            write_run(folder, "A", name, 1, True, False)
            run = folder / "raw" / f"A-{name}-1"
            (run / "run.json").write_text(
                json.dumps(json.loads((run / "run.json").read_text()) | {"scheme": scheme})
            )
            records = [json.loads(line) for line in (run / "traffic.jsonl").read_text().splitlines()]
            for record in records:
                record["qct_ms"] *= times + repeat / 100
            (run / "traffic.jsonl").write_text("\n".join(json.dumps(record) for record in records))
    return experiment


def test_medians_and_verdicts_are_in_the_folder_the_report_the_plot_and_on_the_terminal(
    tmp_path: Path,
) -> None:
    _write_repeats(tmp_path)
    done = CliRunner().invoke(lab, ["report", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "medians over the repeats" in done.stdout
    assert "A, QCT p50: SCCP is lower than plain TCP: x 0.5" in done.stdout
    found = json.loads((tmp_path / "comparisons.json").read_text())
    assert [(one["figure"], one["pairs"], one["verdict"]) for one in found["comparisons"]] == [
        ("QCT p50", 6, LOWER),
        ("QCT p99", 6, LOWER),
    ]
    assert len(found["medians"]) == 4
    assert (tmp_path / "plots" / "medians.svg").exists()
    page = (tmp_path / "report.html").read_text()
    assert "<td>lower</td>" in page
    assert "median [95 %]" in page


@pytest.mark.parametrize(
    ("effect", "repeats", "verdict"),
    [(1.1, 6, HIGHER), (0.9, 6, LOWER), (1.0, 6, NOT_SHOWN), (2.0, 5, NO_INTERVAL)],
)
def test_two_folders_differ_only_if_the_interval_says_so(
    effect: float, repeats: int, verdict: str, tmp_path: Path
) -> None:
    draw = random.Random(4)
    for name, factor in (("before", 1.0), ("after", effect)):
        folder = tmp_path / name
        folder.mkdir()
        rows = runs("plain", lambda _, factor=factor: 100 * factor * draw.lognormvariate(0, 0.01), repeats)
        (folder / "summary.json").write_text(json.dumps(rows))
        (folder / "metadata.json").write_text(json.dumps({"experiment": one_case(repeats=repeats).to_json()}))
    done = CliRunner().invoke(lab, ["compare", str(tmp_path / "before"), str(tmp_path / "after"), "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert [(row["figure"], row["verdict"]) for row in found] == [("QCT p50", verdict)]
    (last,) = findings(found)
    expected = {
        HIGHER: "A, plain TCP, QCT p50: higher after: x 1.1",
        LOWER: "A, plain TCP, QCT p50: lower after: x 0.9",
        NOT_SHOWN: "no difference shown",
        NO_INTERVAL: "1 of 1 figures have no verdict: that needs 6 valid repeats in each folder",
    }
    assert last.startswith(expected[verdict])


@pytest.mark.parametrize(
    ("before", "after", "verdict", "says"),
    [
        ([0] * 6, [900, 700, 800, 1000, 950, 850], HIGHER, "drops: higher after: 0 before, 875 after"),
        ([900, 700, 800, 1000, 950, 850], [0] * 6, LOWER, "drops: lower after: 875 before, 0 after"),
        ([0] * 6, [0, 0, 0, 0, 900, 900], NOT_SHOWN, "no difference shown"),
        ([0] * 6, [0] * 6, NOT_SHOWN, "no difference shown"),
        ([0] * 6, [900] * 5, NO_INTERVAL, "1 of 1 figures have no verdict"),
    ],
)
def test_a_figure_that_is_zero_has_a_verdict(
    before: list[int], after: list[int], verdict: str, says: str, tmp_path: Path
) -> None:
    """Queues that begin or cease to drop are what a change is about."""
    for name, drops in (("before", before), ("after", after)):
        (tmp_path / name).mkdir()
        rows = [
            row("plain", repeat, 50.0, drops=value) | {"qct_ms": {}} for repeat, value in enumerate(drops, 1)
        ]
        (tmp_path / name / "summary.json").write_text(json.dumps(rows))
    (found,) = compare(tmp_path / "before", tmp_path / "after")
    assert (found["figure"], found["verdict"], found["low"]) == ("drops", verdict, None)
    (last,) = findings([found])
    assert says in last


def test_a_comparison_states_first_which_folder_is_not_complete_and_what_else_differs(tmp_path: Path) -> None:
    for name in ("before", "after"):
        write_folder(tmp_path / name, THREE_SCHEMES)
    shutil.rmtree(tmp_path / "after" / "raw" / "A-sccp-1")
    case = replace(THREE_SCHEMES.cases[1], workers=5)
    other = replace(THREE_SCHEMES, queue_bytes=64_000, cases=(THREE_SCHEMES.cases[0], case))
    (tmp_path / "after" / "metadata.json").write_text(json.dumps({"experiment": other.to_json()}))
    for name in ("before", "after"):
        summarise(tmp_path / name)
    done = CliRunner().invoke(lab, ["compare", str(tmp_path / "before"), str(tmp_path / "after")])
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert lines[0] == (
        f"after, {tmp_path}/after: 1 of 6 runs have no figures: `weir lab run --resume` carries out 1 of them"
    )
    assert "queue_bytes is 150000 before and 64000 after" in lines
    assert "case B: workers is 20 before and 5 after" in lines
    assert "figures have no verdict: that needs 6 valid repeats" in lines[-1]


def test_a_comparison_names_figures_that_became_infinite_and_runs_that_became_void(tmp_path: Path) -> None:
    for name in ("before", "after"):
        write_folder(tmp_path / name, THREE_SCHEMES)
        rows = summarise(tmp_path / name)
        for row in rows:
            if row["case"] == "A":
                row["fct_ms"] = {"p50": 7.0 if name == "before" else None}
                row |= {"flows_planned": 4, "flows_done": 4 if name == "before" else 1}
            if (name, row["case"], row["scheme"]) == ("after", "B", "sccp"):
                row |= {"valid": False, "void_attempts": [{"attempt": 1, "reasons": ["no CPU"]}]}
        (tmp_path / name / "summary.json").write_text(json.dumps(rows))
    larger = replace(THREE_SCHEMES.cases[2], name="D", workers=90)
    other = replace(THREE_SCHEMES, cases=(*THREE_SCHEMES.cases, larger))
    (tmp_path / "after" / "metadata.json").write_text(json.dumps({"experiment": other.to_json()}))
    lines = caveats(tmp_path / "before", tmp_path / "after")
    assert "case A, plain TCP, FCT p50: 7 before, infinite in 1 of 1 runs after: no ratio" in lines
    assert "case B, SCCP, drops: 7 before, no valid run after: no ratio" in lines
    assert "after: SCCP: 1 of 3 attempts were void: no CPU" in lines
    assert (
        "after: plain TCP, case A: 3 of 4 planned flows had not ended: they count as infinitely slow" in lines
    )
    assert "the number of workers in the network is 60 before and 90 after" in lines


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("summary.json", None, "has no summary"),
        ("summary.json", "[", "has no summary"),
        ("metadata.json", None, "is not a result folder"),
        ("metadata.json", '{"experiment": {"name": "x", "gone": 1}}', "another version may have made it: "),
    ],
)
def test_a_folder_that_cannot_be_compared_is_named(
    tmp_path: Path, file: str, content: str | None, says: str
) -> None:
    for name in ("before", "after"):
        write_folder(tmp_path / name, THREE_SCHEMES)
        summarise(tmp_path / name)
    wrong = tmp_path / "after" / file
    wrong.unlink() if content is None else wrong.write_text(content)
    done = CliRunner().invoke(lab, ["compare", str(tmp_path / "before"), str(tmp_path / "after")])
    assert done.exit_code != 0
    assert len(done.output.splitlines()) == 1
    assert f"{tmp_path}/after" in done.output
    assert says in done.output
