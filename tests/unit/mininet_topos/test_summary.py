"""The summary: percentiles, and the goodput of long flows around the queries."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mininet_topos.records.raw_records import goodput_points
from mininet_topos.results.summary import background_figures, percentile, released_mbps, while_sending


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.1, 100))
def test_percentile_is_nearest_rank(values: list[float], percent: float) -> None:
    found = percentile(values, percent)
    assert found in values
    not_above = sum(value <= found for value in values)
    assert not_above >= len(values) * percent / 100 - 1e-6
    assert sum(value < found for value in values) < len(values) * percent / 100 + 1e-6


def test_percentiles_of_twenty_values() -> None:
    values = list(range(1, 21))
    assert [percentile(values, p) for p in (50, 95, 99, 100)] == [10, 19, 20, 20]


def _goodput(rates_mbps: list[float]) -> list[dict[str, Any]]:
    """A record each 100 ms from t = 0, at these rates."""
    total, records = 0.0, [{"host": "root", "event": "goodput", "t_ns": 0, "bytes": 0}]
    for number, rate in enumerate(rates_mbps, 1):
        total += rate * 1e6 / 8 / 10
        records.append(
            {"host": "root", "event": "goodput", "t_ns": number * 100_000_000, "bytes": int(total)}
        )
    return records


def test_long_flows_are_measured_before_during_and_after_the_queries() -> None:
    query = {"event": "query", "start_ns": 2_000_000_000, "qct_ms": 1000.0}
    records = [*_goodput([90] * 20 + [30] * 10 + [50] * 10 + [88] * 20), query]
    figures = background_figures(records, 0)
    assert figures["background_mbps"] == pytest.approx({"before": 90, "during": 30, "after": 88})
    in_periods = background_figures(records, 1500)["background_mbps"]
    assert in_periods == pytest.approx({"before": 90, "during": (30 * 2 + 50) / 3, "after": 88}, abs=0.01)
    assert figures["recovery_s"] == pytest.approx(1.3)  # three tenths of a second at 88 after one at 50


def test_long_flows_that_never_recover_have_no_recovery_time() -> None:
    query = {"event": "query", "start_ns": 2_000_000_000, "qct_ms": 1000.0}
    figures = background_figures([*_goodput([90] * 20 + [30] * 40), query], 0)
    assert figures["recovery_s"] is None
    assert background_figures([query], 0) == {"background_mbps": None, "recovery_s": None}


def test_the_time_after_the_flows_ended_does_not_count() -> None:
    points = [(0.0, 0.0), (1.0, 10.0), (2.0, 20.0), (3.0, 23.0), (4.0, 23.0), (5.0, 23.0)]
    assert while_sending(points) == points[:3]
    assert while_sending(points[:1]) == points[:1]
    assert while_sending([]) == []


def test_a_host_has_a_sink_for_each_transport() -> None:
    one = {"event": "goodput", "host": "root", "port": 5002}
    other = one | {"port": 5003}
    records = [sink | {"t_ns": t, "bytes": t} for t in (0, 100, 200) for sink in (one, other)]
    assert goodput_points(records) == [(0, 0), (100, 200), (200, 400)]


def _planned(flow: int, start_s: float, end_s: float) -> list[dict[str, Any]]:
    named = {"host": "worker1", "flow": flow}
    begun = named | {"event": "connected", "endless": False, "t_ns": start_s * 1e9}
    return [begun, named | {"event": "flow", "t_ns": end_s * 1e9}]


def test_the_rate_after_a_flow_has_ended_is_the_long_flows() -> None:
    long_flow = {"event": "connected", "host": "long1", "flow": 0, "endless": True, "t_ns": 0}
    records = [long_flow, *_goodput([9] * 10 + [18] * 10 + [9] * 10 + [17] * 10)]
    alone = _planned(0, 0.0, 1.0)
    assert released_mbps([*records, *alone]) == pytest.approx(18)
    assert released_mbps([*records, *alone, *_planned(1, 1.1, 3.0)]) == pytest.approx(17)
    assert released_mbps([*records, *_planned(0, 3.0, 3.9)]) is None  # the run ends before
    assert released_mbps(records) is None
    assert released_mbps([*records[1:], *alone]) is None  # no long flow


def test_goodput_of_several_sinks_is_summed_while_all_report() -> None:
    def goodput(host: str, points: list[tuple[int, int]]) -> list[dict[str, Any]]:
        return [{"event": "goodput", "host": host, "t_ns": t, "bytes": sent} for t, sent in points]

    one = goodput("rcv2", [(0, 0), (100, 10), (200, 20), (300, 30)])
    other = goodput("rcv3", [(50, 0), (150, 40), (250, 80)])
    assert goodput_points([*one, *other]) == [(100, 30), (200, 80)]
    assert goodput_points(one) == [(0, 0), (100, 10), (200, 20), (300, 30)]
    assert goodput_points([]) == []
