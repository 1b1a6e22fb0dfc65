"""``weir ports`` and ``weir flows``: what is read, shown, and said when nothing runs."""

from __future__ import annotations

import itertools
import json
from ipaddress import ip_network
from threading import Event
from typing import Any

import pytest
from click.testing import CliRunner

from openflow_ext.switch import look
from openflow_ext.switch.dataplane import PortCounters
from openflow_ext.switch.rules import CountOp, Rule, RuleStats, TcpMatch, WindowOp
from openflow_ext.switch.tracked import TrackedFlow

FLOW = TrackedFlow(999_999, "10.0.0.1", 80, "10.0.0.2", 40000, "idle", True, 7, None, 1460, 536, 9, 2.0, 1.0)
MATCH = TcpMatch(4, ip_network("10.0.0.0/24"), ip_network("10.0.0.1/32"), dst_port=80, flags=2, flags_mask=18)
RULE = Rule(1, 7, 0xC0, MATCH, WindowOp.MOD_WINDOW, 1536, 5, CountOp.INCREMENT_NI)


class Maps:
    """Maps whose counters grow by 5 a reading."""

    def __init__(self, name: str = "") -> None:
        self.readings = itertools.count()

    def ports(self) -> dict[int, tuple[int, int]]:
        return {1: (2, 1), 999_999: (1, 7)}

    def counters(self, ifindex: int) -> PortCounters:
        return PortCounters(n_i=ifindex, alarm_up=True, clamped=5 * next(self.readings))

    def rules(self, bridge: int) -> list[tuple[Rule, RuleStats]]:
        return [(RULE, RuleStats(3, 200, 2))] if bridge == 1 else []

    def flows(self) -> Any:
        return itertools.repeat(FLOW, 500)

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def maps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "PinnedMaps", Maps)
    monkeypatch.setattr(look, "WATCH_S", 0.01)


def output(command: Any, *argv: str) -> str:
    result = CliRunner().invoke(command, argv, env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    return result.output


def test_ports_by_bridge_and_number() -> None:
    rows = json.loads(output(look.ports, "--json"))["ports"]
    assert [(row["name"], row["bridge"], row["ofport"], row["n_i"]) for row in rows] == [
        ("if999999", 1, 7, 999_999),
        ("lo", 2, 1, 1),
    ]
    assert "999,999" in output(look.ports)


def test_watching_tells_how_fast_counters_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    maps: Any = Maps()
    first, second = itertools.islice(look._readings(lambda: look.read_ports(maps), Event()), 2)
    assert "rates" not in first[0]
    assert 0 < second[0]["rates"]["clamped"] <= 1000
    assert second[0]["rates"]["drops"] == 0
    assert "/s)" in look._cell(second[0], "clamped")
    assert "/s)" not in look._cell(second[0], "drops")


def test_watching_ends_with_the_reading_after_which_it_was_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    maps, ended = Maps(), Event()
    monkeypatch.setattr(look, "WATCH_S", 30)
    for _ in look._readings(lambda: look.read_ports(maps), ended):  # type: ignore[arg-type]
        ended.set()
    assert next(maps.readings) == len(maps.ports())


def test_entries_are_written_as_ovs_ofctl_and_the_papers_do() -> None:
    (row,) = json.loads(output(look.flows, "--json"))["entries"]
    assert row["match"] == "tcp,nw_src=10.0.0.0/24,nw_dst=10.0.0.1,tp_dst=80,tcp_flags=0x2/0x12"
    assert row["actions"] == "MOD_WINDOW(1536, alpha=5), INCREMENT_NI(output)"
    assert (row["bridge"], row["table"], row["packets"], row["clamped"]) == (1, 1, 3, 2)
    assert "INCREMENT_NI(output)" in output(look.flows)


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (Rule(0, 1, 0, window_op=WindowOp.FAIR_SHARE), "SET_WINDOW(fair share)"),
        (Rule(0, 1, 0, window_op=WindowOp.SET_WINDOW, window_bytes=9), "SET_WINDOW(9)"),
        (Rule(0, 1, 0, count_op=CountOp.DECREMENT_NI, count_port=3), "DECREMENT_NI(3)"),
    ],
)
def test_actions(rule: Rule, text: str) -> None:
    assert look.actions_text(rule) == text


def test_tracked_flows_up_to_a_limit() -> None:
    assert len(json.loads(output(look.flows, "--tracked", "--json"))["flows"]) == 100
    rows = json.loads(output(look.flows, "--tracked", "--json", "--limit", "0"))["flows"]
    assert (len(rows), rows[0]["port"], rows[0]["remote_scale"]) == (500, "if999999", None)
    assert output(look.flows, "--tracked", "--limit", "2").count("10.0.0.2") == 2


def test_no_data_plane_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    for command in (look.ports, look.flows):
        result = CliRunner().invoke(command, ["--name", "no-such"])
        assert (result.exit_code, result.output.count("\n")) == (1, 1)
        assert "start `weir switch` first" in result.output
