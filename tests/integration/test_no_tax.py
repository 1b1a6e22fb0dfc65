"""Long flows without a burst: the controllers take no throughput from a link, and keep its queue short.

These are corners of the experiments `long-flows` and `long-flows-30ms`, in one short run for each scheme. So
the bounds are wider here. The goals of the experiments are 0.99 of plain TCP's goodput and a fifth of the
queue.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from mininet_topos.experiments.experiment import Case, Experiment
from mininet_topos.results.report import make_report
from mininet_topos.results.summary import Row
from mininet_topos.running.experiment_runner import Progress, run_experiment
from tests.support.lab.void_runs import shown

pytestmark = pytest.mark.timeout(400)
LEAST_GOODPUT = 0.95
QUEUE_PKTS = 99
NO_DELAY = Experiment(
    name="no-delay",
    cases=(
        Case("long1", "1 long flow", background=1, duration_s=4.0),
        Case("long30", "30 long flows", background=30, duration_s=4.0),
    ),
    schemes=("plain", "sccp-auto", "sdtcp-auto", "sdtcp+sccp"),
    bandwidth_mbps=100,
    queue_bytes=150_000,
    congestion_control="cubic",
    repeat_until_s=100,
)
RTT_30_MS = replace(
    NO_DELAY,
    name="rtt-30ms",
    cases=(Case("long1", "1 long flow", background=1, duration_s=4.0),),
    schemes=("plain", "sdtcp+sccp"),
    delay_ms=15,
)
BESIDE_PLAIN = [
    (experiment.name, case.name, scheme)
    for experiment in (NO_DELAY, RTT_30_MS)
    for case in experiment.cases
    for scheme in experiment.schemes
    if scheme != "plain"
]


@pytest.fixture(scope="module")
def row_of(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str, str], Row]:
    """Each run's row, by experiment, case and scheme."""
    found = {}
    for experiment in (NO_DELAY, RTT_30_MS):
        out = tmp_path_factory.mktemp(experiment.name) / "out"
        run_experiment(experiment, out, Progress(lambda text: None, lambda: None, print))
        found |= {(experiment.name, row["case"], row["scheme"]): row for row in make_report(out)}
    return found


@pytest.mark.parametrize(("experiment", "case", "scheme"), BESIDE_PLAIN)
def test_long_flows_have_the_goodput_of_plain_tcp(
    row_of: dict[tuple[str, str, str], Row], experiment: str, case: str, scheme: str
) -> None:
    plain, row = shown(row_of[experiment, case, "plain"]), shown(row_of[experiment, case, scheme])
    assert row["goodput_mbps"] >= LEAST_GOODPUT * plain["goodput_mbps"]


@pytest.mark.parametrize(("experiment", "case", "scheme"), BESIDE_PLAIN)
def test_long_flows_leave_the_queue_short(
    row_of: dict[tuple[str, str, str], Row], experiment: str, case: str, scheme: str
) -> None:
    """Windows of 30 flows hold at least a segment each, and a runt if SDTCP alone does not fit segments.

    Plain TCP fills the queue. At an RTT of 30 ms a single flow sends its window of 250 segments in bursts.
    """
    plain, row = shown(row_of[experiment, case, "plain"]), shown(row_of[experiment, case, scheme])
    part = 1 / 2 if case == "long1" else 3 / 4
    assert row["queue_pkts_p95"] <= part * QUEUE_PKTS
    if case == "long30":
        assert row["drops"] <= plain["drops"] / 5
