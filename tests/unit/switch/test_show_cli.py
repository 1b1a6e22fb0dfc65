"""``weir ports`` and ``weir flows``: their rows, their tables at 80 columns, their errors."""

from __future__ import annotations

import itertools
import json
import signal
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner

from openflow_ext.switch import show_cli
from openflow_ext.switch.dataplane.rules import CountOp, Rule, RuleStats, TcpMatch, WindowOp
from openflow_ext.switch.dataplane.tracked_flows import TrackedFlow
from weir_base.port_counters import PortCountersFlags, PortCountersRecord

FLOW = TrackedFlow(999_999, "10.0.0.1", 80, "10.0.0.2", 40000, "idle", True, 7, None, 1460, 536, 9, 2.0, 1.0)
MATCH = TcpMatch(4, ip_network("10.0.0.0/24"), ip_network("10.0.0.1/32"), dst_port=80, flags=2, flags_mask=18)
RULE = Rule(1, 7, 0xC0, MATCH, WindowOp.MOD_WINDOW, 1536, 5, CountOp.INCREMENT_NI)


class Maps:
    """The maps of a data plane with two ports, whose counters grow by 5 with each reading."""

    max_flows = 123_456
    interfaces: ClassVar = {1: (2, 1), 999_999: (1, 7)}

    def __init__(self, name: str = "") -> None:
        self.readings = itertools.count()

    def ports(self) -> dict[int, tuple[int, int]]:
        return dict(self.interfaces)

    def counters(self, ifindex: int) -> PortCountersRecord:
        return PortCountersRecord(
            1, n_i=ifindex, flags=PortCountersFlags.ALARM_UP, clamped=5 * next(self.readings)
        )

    def rules(self, bridge: int) -> list[tuple[Rule, RuleStats]]:
        return [(RULE, RuleStats(3, 200, 2))] if bridge == 1 else []

    def flows(self) -> Any:
        return (replace(FLOW, sent_bytes=number) for number in range(500))

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def maps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(show_cli, "PinnedMaps", Maps)
    monkeypatch.setattr(show_cli, "WATCH_S", 0.01)


def output(command: Any, *argv: str, columns: int = 200) -> str:
    result = CliRunner().invoke(command, argv, env={"COLUMNS": str(columns)})
    assert result.exit_code == 0, result.output
    return result.output


def refusal(command: Any, *argv: str) -> str:
    result = CliRunner().invoke(command, argv)
    assert result.exit_code != 0
    return result.output


def test_ports_are_ordered_by_bridge_and_port_number() -> None:
    rows = json.loads(output(show_cli.ports, "--json"))["ports"]
    assert [(row["name"], row["bridge"], row["ofport"], row["n_i"]) for row in rows] == [
        ("if999999", 1, 7, 999_999),
        ("lo", 2, 1, 1),
    ]
    assert "999,999" in output(show_cli.ports)


def test_the_settings_name_the_data_plane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(show_cli, "PinnedMaps", lambda name: opened.append(name) or Maps(name))
    file = tmp_path / "weir.toml"
    file.write_text('[switch]\nname = "filed"\n')
    monkeypatch.setenv("WEIR_CONFIG", str(file))
    for command in (show_cli.ports, show_cli.flows):
        output(command)
        output(command, "--name", "other")
    assert opened == ["filed", "other"] * 2
    file.write_text("[switch]\nname = 5\n")
    assert "[switch] name" in refusal(show_cli.ports)


def test_ports_states_the_size_of_the_flow_table() -> None:
    assert json.loads(output(show_cli.ports, "--json"))["max_flows"] == 123_456
    assert "room for 123,456 flows" in output(show_cli.ports)


@pytest.fixture
def many_ports(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    interfaces = {900_001 + number: (1, number + 1) for number in range(request.param)}
    monkeypatch.setattr(Maps, "interfaces", interfaces)
    return len(interfaces)


@pytest.mark.parametrize("many_ports", [13, 120], indirect=True)
def test_ports_are_rows_whose_cells_are_whole_at_80_columns(many_ports: int) -> None:
    lines = output(show_cli.ports, columns=80).splitlines()
    assert max(map(len, lines)) <= 80
    for number in range(many_ports):
        (line,) = [line for line in lines if line.startswith(f"if{900_001 + number} ")]
        assert line.split()[:3] == [f"if{900_001 + number}", f"{900_001 + number:,}", "0"]
    headings = " ".join(" ".join(lines[:4]).split())
    for word in ("N_i", "share", "queue", "alarms", "clamped", "drops"):
        assert word in headings
    assert "Not shown in 80 columns:" in " ".join(lines[-6:])


@pytest.mark.parametrize("many_ports", [120], indirect=True)
def test_ports_can_be_chosen_and_sorted(many_ports: int) -> None:
    chosen = output(show_cli.ports, "--port", "if900002", "--port", "if900120", "--columns", "name,ofport")
    assert chosen.split() == ["name", "ofport", "if900002", "2", "if900120", "120"]
    by_n_i = output(show_cli.ports, "--sort", "n_i", "--columns", "n_i").split()
    assert by_n_i[-120:] == [f"{900_120 - number:,}" for number in range(120)]
    assert len(json.loads(output(show_cli.ports, "--json", "--port", "if900007"))["ports"]) == 1


def test_a_port_or_column_that_does_not_exist_is_refused_with_those_that_do() -> None:
    assert "port s9 does not carry the data plane; the ports that do: lo, if999999" in refusal(
        show_cli.ports, "--port", "s9"
    )
    assert "unknown column 'clmped'" in refusal(show_cli.ports, "--columns", "clmped")
    assert "no column 'local'" in refusal(show_cli.flows, "--sort", "local")


def test_watch_shows_the_growth_of_counters_per_second(monkeypatch: pytest.MonkeyPatch) -> None:
    maps: Any = Maps()
    readings = show_cli._readings_until_ctrl_c(lambda: show_cli.read_ports(maps))
    first, second = itertools.islice(readings, 2)
    assert "rates" not in first[0]
    assert 0 < second[0]["rates"]["clamped"] <= 1000
    assert second[0]["rates"]["drops"] == 0
    assert "/s" in show_cli._counter_text(second[0], "clamped")
    assert "/s" not in show_cli._counter_text(second[0], "drops")


def test_watch_ends_after_the_reading_during_which_ctrl_c_came(monkeypatch: pytest.MonkeyPatch) -> None:
    maps: Any = Maps()
    monkeypatch.setattr(show_cli, "WATCH_S", 30)
    for _ in show_cli._readings_until_ctrl_c(lambda: show_cli.read_ports(maps)):
        signal.raise_signal(signal.SIGINT)
    assert next(maps.readings) == len(maps.ports())


def test_entries_are_written_as_ovs_ofctl_and_the_papers_write_them() -> None:
    (row,) = json.loads(output(show_cli.flows, "--json"))["entries"]
    assert row["match"] == "tcp,nw_src=10.0.0.0/24,nw_dst=10.0.0.1,tp_dst=80,tcp_flags=0x2/0x12"
    assert row["actions"] == "MOD_WINDOW(1536, alpha=5), INCREMENT_NI(output)"
    assert (row["bridge"], row["table"], row["packets"], row["clamped"]) == (1, 1, 3, 2)
    table = output(show_cli.flows, columns=80)
    assert max(map(len, table.splitlines())) <= 80
    assert "INCREMENT_NI(output)" in table


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (Rule(0, 1, 0, window_op=WindowOp.FAIR_SHARE), "SET_WINDOW(fair share)"),
        (Rule(0, 1, 0, window_op=WindowOp.SET_WINDOW, window_bytes=9), "SET_WINDOW(9)"),
        (Rule(0, 1, 0, window_op=WindowOp.FAIR_SHARE, observes=True), "OBSERVE, SET_WINDOW(fair share)"),
        (Rule(0, 1, 0, count_op=CountOp.DECREMENT_NI, count_port=3), "DECREMENT_NI(3)"),
    ],
)
def test_actions_are_written_by_the_names_of_the_papers(rule: Rule, text: str) -> None:
    assert show_cli.actions_text(rule) == text


def test_tracked_flows_are_shown_up_to_the_limit() -> None:
    assert len(json.loads(output(show_cli.flows, "--tracked", "--json"))["flows"]) == 100
    rows = json.loads(output(show_cli.flows, "--tracked", "--json", "--limit", "0"))["flows"]
    assert (len(rows), rows[0]["port"], rows[0]["remote_scale"]) == (500, "if999999", None)
    table = output(show_cli.flows, "--tracked", "--limit", "2", columns=80)
    assert max(map(len, table.splitlines())) <= 80
    assert table.count("10.0.0.2") == 2


def test_the_limit_keeps_the_first_flows_in_the_order_asked_for() -> None:
    argv = ("--tracked", "--json", "--limit", "3", "--sort", "sent_bytes")
    rows = json.loads(output(show_cli.flows, *argv))["flows"]
    assert [row["sent_bytes"] for row in rows] == [499, 498, 497]


def test_a_missing_data_plane_is_an_error_of_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    for command in (show_cli.ports, show_cli.flows):
        result = CliRunner().invoke(command, ["--name", "no-such"])
        assert (result.exit_code, result.output.count("\n")) == (1, 1)
        assert "start `weir switch` first" in result.output
