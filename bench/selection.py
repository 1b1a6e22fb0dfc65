"""Measure what it costs SDTCP to choose a flow, by the number of flows that leave a port.

    python -m bench.selection [--largest N] [--policy NAME] [--json]

"choose" is the policy's first candidates of a port. "decide" is the time from an alarm to the decision.
"lift" is the end of that clamp. "change" is a report on a flow, which changes its rank if the policy
depends on volume or rate. Each figure is the median in microseconds, with the span of 90 % of the values.
"ratio" compares "decide" with that of the smallest size; the next column has the ratio of log(flows).
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import click

from bench.figures import Spread, present
from flowdb.flow import FiveTuple, Flow, Hop, PortKey
from flowdb.index import FlowIndex
from mininet_topos.results.summary import percentile
from sdtcp_app.config import SdtcpSettings
from sdtcp_app.core import RANKED, Sdtcp
from sdtcp_app.core_types import Alarm
from sdtcp_app.policies import policy_names

SMALLEST, RUNS = 1000, 500
PORT = PortKey(2, 1)
ALARM = Alarm(PORT, 45_000, 10**9, 100, 30)


def flows(count: int) -> Iterable[Flow]:
    """Flows over two switches, of different age, volume and rate."""
    chance = random.Random(1)  # noqa: S311 - flows, not secrets
    path = (Hop(1, 1, 2), Hop(2, 3, 1))
    for number in range(count):
        key = FiveTuple(f"10.0.{number >> 16}.1", "10.1.0.1", number & 0xFFFF, 80)
        volume, rate = chance.randrange(10**9), chance.randrange(10**9)
        yield Flow(number + 1, key, path, chance.randrange(10**18), 1460, 9, 7, 250, volume, rate)


def timed(what: Callable[[], object]) -> float:
    start = time.perf_counter_ns()
    what()
    return (time.perf_counter_ns() - start) / 1000


def measure(count: int, policy: str) -> dict[str, Any]:
    index = FlowIndex(SdtcpSettings(policy=policy).rank(set()))
    for flow in flows(count):
        index.add(flow)
    core = Sdtcp(index, SdtcpSettings().parameters)
    chance = random.Random(2)  # noqa: S311 - flows, not secrets
    taken: dict[str, list[float]] = {name: [] for name in ("choose", "decide", "lift", "change")}
    now_ns = 0
    for _ in range(RUNS):
        now_ns += core.parameters.step_ns
        taken["choose"].append(timed(lambda: index.candidates(PORT, RANKED)))
        taken["decide"].append(timed(partial(core.on_alarm, ALARM, now_ns)))
        held = index.get(chance.randrange(1, count + 1))
        assert held is not None  # noqa: S101 - all are there
        told = replace(held, sent_bytes=held.sent_bytes + 10**6, rate_bps=chance.randrange(10**9))
        taken["change"].append(timed(partial(index.change, told)))
    for flow_id in range(1, count + 1):
        if len(taken["lift"]) < RUNS and (held := index.get(flow_id)) and core.is_punished(flow_id):
            taken["lift"].append(timed(partial(core.on_flow_closed, held)))
    return {"flows": count, **{f"{name}_us": of(values) for name, values in taken.items()}}


def of(values: list[float]) -> Spread:
    """The median, with the span of 90 % of the values."""
    return Spread(percentile(values, 50), percentile(values, 5), percentile(values, 95), len(values))


@click.command(help=__doc__)
@click.option("--largest", default=1_000_000, show_default=True, help="The largest number of flows.")
@click.option(
    "--policy", type=click.Choice(policy_names()), default="longest-lived-active", show_default=True
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def main(largest: int, policy: str, as_json: bool) -> None:
    sizes = [SMALLEST * 10**step for step in range(int(math.log10(largest / SMALLEST)) + 1)]
    rows = [measure(size, policy) for size in sizes]
    first = rows[0]["decide_us"]
    for row in rows:
        row["ratio"] = f"{row['decide_us'].median / first.median:.2f}"
        row["ratio of log"] = f"{math.log(row['flows']) / math.log(SMALLEST):.2f}"
    columns = ["flows", "choose_us", "decide_us", "lift_us", "change_us", "ratio", "ratio of log"]
    present(f"choosing a flow, {policy}", columns, rows, as_json)


if __name__ == "__main__":
    main()
