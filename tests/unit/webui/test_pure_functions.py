"""The dashboard's pure functions: the map, cursors, search lines, formats of values, the verdict."""

from __future__ import annotations

import contextlib
import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowdb.explanation import ClampTotals
from webui import template_filters as text
from webui.network_map import draw, level
from webui.parameters import BadParameters, FlowParameters
from webui.queries.experiments import experiment, experiments
from webui.queries.flow_story import verdict
from webui.queries.paging import BadCursor, Cursor, cut
from webui.queries.ports import busiest, increments, unknown_port
from webui.views import Clamp, Flow, Hop, Host, Link, PortName, Switch, Topology

numbers = st.integers(0, 30)


def a_port(dpid=1, port_no=1, **more):
    place = PortName(dpid=f"{dpid:016x}", port_no=port_no, name=f"s{dpid}-eth{port_no}")
    return unknown_port(place).model_copy(update=more)


def a_flow(**more):
    values = dict.fromkeys(Flow.model_fields) | {
        "id": 1,
        "src": "a",
        "dst": "b",
        "src_port": 1,
        "dst_port": 2,
    }
    values |= {"state": "active", "opened_ns": 0, "rate_bps": 0, "sent_bytes": 0, "mss_bytes": 1448}
    return Flow(**(values | more))


def a_clamp(**more):
    values = {"id": 1, "decision_id": 1, "flow_id": 1, "flow": "a", "port": a_port(), "window_bytes": 5000}
    return Clamp(**(values | {"pushed_ns": 0, "lifted_ns": None, "lift_reason": None} | more))


@given(
    st.sets(numbers, max_size=8),
    st.sets(st.tuples(numbers, numbers), max_size=20),
    st.lists(numbers, max_size=60),
)
def test_the_map_can_show_every_network(dpids, links, hosts):
    """Links may form loops or islands, and links and hosts may be at unknown switches."""
    drawing = draw(
        Topology(
            switches=[
                Switch(dpid=f"{d:016x}", connected=True, last_seen_ns=0, ports=1) for d in sorted(dpids)
            ],
            links=[Link(src=a_port(a), dst=a_port(b), up=True, rate_bps=0) for a, b in sorted(links)],
            hosts=[
                Host(mac=str(n), ipv4=None, ipv6=None, dpid=f"{d:016x}", port_no=1)
                for n, d in enumerate(hosts)
            ],
            edges=[Link(src=a_port(d), dst=a_port(d), up=True, rate_bps=0) for d in sorted(set(hosts))],
        )
    )
    assert len(drawing.nodes) == len(dpids)
    assert len({(node.x, node.y) for node in drawing.nodes}) == len(dpids)
    assert len(drawing.leaves) == sum(d in dpids for d in hosts)
    assert len(drawing.lines) == sum(a in dpids and b in dpids for a, b in links)
    for place in (*drawing.nodes, *drawing.leaves):
        assert 0 <= place.x <= drawing.width
        assert 0 <= place.y <= drawing.height


@pytest.mark.parametrize(
    ("port", "expected"),
    [
        ({}, 0),
        ({"queue_pkts": 1}, 1),
        ({"queue_pkts": 5}, 2),
        ({"queue_pkts": 20}, 3),
        ({"alarm_up": True}, 4),
    ],
)
def test_the_level_of_a_queue(port, expected):
    assert level(a_port(**port)) == expected


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1), st.booleans())
def test_a_cursor_is_parsed_as_it_was_written(value, row_id, backwards):
    cursor = Cursor(value, row_id, backwards)
    assert Cursor.parse(str(cursor)) == cursor


@given(st.text(max_size=40))
def test_an_invalid_cursor_is_refused(text_given):
    with contextlib.suppress(BadCursor):
        assert str(Cursor.parse(text_given)) == text_given


@given(st.lists(st.integers(), unique=True, max_size=30), st.integers(1, 10))
def test_pages_together_hold_every_row(values, limit):
    seen, cursor, left = [], None, sorted(values, reverse=True)
    while True:
        rows, page = cut(
            [n for n in left if cursor is None or n < cursor][: limit + 1], None, limit, lambda n: (0, 0)
        )
        seen += rows
        if page.after is None:
            break
        cursor = rows[-1]
    assert seen == left


@given(st.text(max_size=60))
def test_any_search_line_is_parsed_or_refused(sought):
    with contextlib.suppress(BadParameters):
        assert FlowParameters(q=sought).filter.state == "any"


@pytest.mark.parametrize(
    ("sought", "found"),
    [
        ("10.0.0.1", {"address": "10.0.0.1"}),
        (":80", {"port": 80}),
        ("80", {"port": 80}),
        ("[fd00::1]:80", {"address": "fd00::1", "port": 80}),
        ("FD00:0::1", {"address": "fd00::1"}),
        ("10.0.0.1:5 > 10.0.0.2", {"src": "10.0.0.1", "src_port": 5, "dst": "10.0.0.2"}),
        ("10.0.0.1:5 → 10.0.0.2:6", {"src": "10.0.0.1", "src_port": 5, "dst": "10.0.0.2", "dst_port": 6}),
    ],
)
def test_search_lines_are_parsed(sought, found):
    assert FlowParameters(q=sought).filter.model_dump(exclude_defaults=True) == found


def test_values_are_written_with_prefix_and_unit():
    plain = [
        text.rate(1_250_000_000),
        text.size(999),
        text.span(1_500_000),
        text.span(90 * 10**9),
        text.count(12345),
    ]
    assert [one.replace("\u00a0", " ").replace("\u202f", " ") for one in plain] == [
        *("1.25 Gbit/s", "999 B", "1.5 ms", "90 s", "12 345"),
    ]
    assert text.rate(None) == text.span(None) == text.moment(None) == text.moment(2**62 * 100) == "\u2013"
    assert 'datetime="2026-11-21T00:00:00.000Z"' in text.moment(1_795_219_200 * 10**9)
    assert 'datetime="2026-11-21T11:00:00.000Z"' in text.started("2026-11-21T12:00:00+0100")
    assert text.started("yesterday") == "yesterday"


def test_a_value_that_rounds_to_1000_has_no_exponent():
    written = [text.rate(999_700_000), text.rate(999_400_000), text.size(999_999), text.span(999_700_000)]
    written += [text.span(999_600), text.rate(2 * 10**18)]
    assert [one.replace("\u00a0", " ") for one in written] == [
        *("1 Gbit/s", "999 Mbit/s", "1 MB", "1 s", "1 ms", "2000 Pbit/s"),
    ]


def test_a_counter_that_restarts_counts_from_0():
    assert increments([]) == []
    assert increments([5, 7, 7, 2]) == [0, 2, 0, 2]


def test_the_busiest_ports_exclude_idle_ports():
    known = [a_port(1), a_port(2, queue_pkts=9), a_port(3, alarm_up=True), a_port(4, clamps=1)]
    assert [port.dpid[-1] for port in busiest(known)] == ["3", "4", "2"]


@pytest.mark.parametrize(
    ("flow", "queue", "clamped", "state", "phrase"),
    [
        ({}, 0, [], "free", "Otherwise the limit is at one of its ends"),
        ({}, 44, [], "queue ahead", "down, but its data waits in the queue of s1-eth1: 44 packets"),
        (
            {},
            0,
            [a_clamp(lifted_ns=10**9, lift_reason="limit")],
            "was punished",
            "once, the last time for 1.0 s. Reason for the lift: limit",
        ),
        ({}, 0, [a_clamp()], "punished", "held at 5000 bytes"),
        (
            {"closed_ns": 5, "close_reason": "fin"},
            0,
            [],
            "closed",
            "is closed (fin). No clamp of SDTCP is recorded.",
        ),
        (
            {"closed_ns": 5},
            0,
            [a_clamp(lifted_ns=10**8)] * 2,
            "closed",
            "slowed it down twice, for 200 ms in all",
        ),
    ],
)
def test_the_verdict_names_the_cause(flow, queue, clamped, state, phrase):
    path = [Hop(position=0, in_port=2, port=a_port(queue_pkts=queue, sampled_ns=10**9))]
    totals = ClampTotals(len(clamped), sum((one.lifted_ns or 0) - one.pushed_ns for one in clamped))
    judged, sentence = verdict(a_flow(**flow), path, [], clamped, totals, 31 * 10**9)
    assert judged == state
    assert phrase in sentence


def test_a_queue_that_was_sampled_long_ago_slows_no_flow_down():
    """Its switch or the controller is gone."""
    path = [Hop(position=0, in_port=2, port=a_port(queue_pkts=44, sampled_ns=10**9))]
    judged, _ = verdict(a_flow(), path, [], [], ClampTotals(0, 0), 31 * 10**9 + 1)
    assert judged == "free"


def test_the_verdict_of_a_flow_that_is_only_observed_states_the_window_that_it_would_have():
    path = [Hop(position=0, in_port=2, port=a_port())]
    decision = SimpleNamespace(entry={"observed": True}, window_bytes=1460, port=a_port())
    judged, sentence = verdict(a_flow(), path, [decision], [], ClampTotals(0, 0), 0)
    assert judged == "free"
    assert "it observes. It would have given the flow a window of 1460 bytes at s1-eth1" in sentence


def test_only_valid_result_folders_are_listed(tmp_path):
    row = {
        "scheme": "sdtcp",
        "workers": 2,
        "size_bytes": 1,
        "ideal_ms": 1.0,
        "qct_ms": {"p50": 2.0},
        "valid": True,
    }
    for name, rows in (("good", [row, {"half": 1}]), ("broken", {}), ("-odd", [row])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "metadata.json").write_text(json.dumps({"started": "2026"}))
        (tmp_path / name / "summary.json").write_text(json.dumps(rows))
    assert [one.name for one in experiments(tmp_path)] == ["good"]
    found = experiment(tmp_path, "good")
    assert found
    assert (found.schemes, len(found.rows), found.has_report) == (["sdtcp"], 1, False)
    assert experiment(tmp_path, "../good") is None
    assert experiments(tmp_path / "nothing") == []
