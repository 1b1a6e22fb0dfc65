"""SDTCP on the paper's figure 7: the full link is between two switches."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from flowdb.models import AlarmRow, ClampRow, HopRow
from mininet_topos.experiment import Case, Experiment
from mininet_topos.lab import Progress, run_experiment
from mininet_topos.records import queries, read_run
from mininet_topos.report import make_report
from mininet_topos.summary import Row
from tests.unit.database import rows

pytestmark = pytest.mark.timeout(400)
REACTED_MS = 250
"""When all flows of a first burst have been slowed, one in 3/2 RTT, and what was on its way has come."""

FIGURE_7 = Experiment(
    name="figure7",
    cases=(
        Case("A", "10 bursts of 500 KB beside 10 long flows", 10, 500_000, 10, 6),
        Case("B", "30 bursts of 170 KB alone", 30, 170_000, 0, 6),
    ),
    schemes=("plain", "sdtcp"),
    bandwidth_mbps=100,
    queue_bytes=150_000,
    topology="dumbbell,40,3",
    gap_ms=500,
    repeat_until_s=0,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sections V.A and V.B at 100 Mbit/s, run once."""
    out = tmp_path_factory.mktemp("figure7") / "out"
    run_experiment(FIGURE_7, out, Progress(lambda text: None, lambda: None, print))
    return out


@pytest.fixture(scope="module")
def row_of(folder: Path) -> dict[tuple[str, str], Row]:
    return {(row["case"], row["scheme"]): row for row in make_report(folder)}


def burst_ms(folder: Path, run: str) -> float:
    """How long all bursts of a run took together."""
    _, records = read_run(folder / "raw" / run)
    return sum(float(query["qct_ms"]) for query in queries(records))


def test_bursts_beside_long_flows_are_over_sooner_than_under_plain_tcp(
    folder: Path, row_of: dict[tuple[str, str], Row]
) -> None:
    plain, sdtcp = row_of["A", "plain"], row_of["A", "sdtcp"]
    assert burst_ms(folder, sdtcp["run"]) < burst_ms(folder, plain["run"])


def test_bursts_alone_keep_the_link_busy(folder: Path, row_of: dict[tuple[str, str], Row]) -> None:
    """The paper has nine tenths of the link; TCP has as much here, where a round trip is a full queue."""
    sdtcp = row_of["B", "sdtcp"]
    assert burst_ms(folder, sdtcp["run"]) < sdtcp["queries"] * sdtcp["ideal_ms"] / 0.8


@pytest.mark.parametrize("case", ["A", "B"])
def test_few_packets_are_dropped_and_the_queue_is_drawn(
    folder: Path, row_of: dict[tuple[str, str], Row], case: str
) -> None:
    assert row_of[case, "sdtcp"]["drops"] < row_of[case, "plain"]["drops"] / 2
    assert (folder / "plots" / f"queue_{case}.svg").exists()


def test_long_flows_get_their_rate_back(row_of: dict[tuple[str, str], Row]) -> None:
    sdtcp = row_of["A", "sdtcp"]
    assert sdtcp["recovery_s"] is not None
    assert sdtcp["background_mbps"]["after"] > 80


@pytest.mark.parametrize("case", ["A", "B"])
def test_nothing_is_dropped_after_the_first_reaction(
    folder: Path, row_of: dict[tuple[str, str], Row], case: str
) -> None:
    run = folder / "raw" / row_of[case, "sdtcp"]["run"]
    record, records = read_run(run)
    reacted_ms = (queries(records)[0]["start_ns"] - record["trace_start_ns"]) / 1e6 + REACTED_MS
    with open(run / "queue.csv") as file:
        late = [line for line in csv.DictReader(file) if int(line["time_ms"]) > reacted_ms]
    assert sum(int(line["drops"]) for line in late) == 0


def test_the_full_port_is_the_one_between_the_switches(folder: Path) -> None:
    database = folder / "raw" / "sdtcp" / "flowdb.sqlite"
    assert {(row.dpid, row.port_no) for row in rows(database, AlarmRow) if row.kind == "alarm"} == {(1, 1)}
    crossing = {row.flow_id for row in rows(database, HopRow) if (row.dpid, row.out_port) == (1, 1)}
    punished = {row.flow_id for row in rows(database, ClampRow)}
    assert punished
    assert punished <= crossing
