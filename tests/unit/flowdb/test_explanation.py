"""The explanation of a flow: what `weir why`, the dashboard and its API read."""

from __future__ import annotations

import pytest
from sqlalchemy.orm import Session

from flowdb.engine import open_reader
from flowdb.explanation import NoSuchFlow, explain_flow, find_flows
from tests.support.controllers.sdtcp_history import KEY, record


@pytest.fixture
def session(tmp_path):
    """A database in which flow 1 was clamped and released, and a person had flow 2 clamped."""
    record(tmp_path / "weir.db")
    with Session(open_reader(f"sqlite:///{tmp_path}/weir.db")) as session:
        yield session


def test_a_flow_is_found_by_its_id_and_by_its_5_tuple(session):
    assert find_flows(session, "1") == find_flows(session, str(KEY)) == ([1], 1)


@pytest.mark.parametrize(
    "name",
    ["99", str(2**63 - 1), str(2**63), pytest.param("9" * 5000, id="5000 digits"), "10.0.0.9:1>10.0.0.3:80"],
)
def test_a_flow_that_is_not_in_the_database_is_refused(session, name):
    with pytest.raises(NoSuchFlow, match="holds no flow"):
        find_flows(session, name)


def test_text_that_is_no_5_tuple_is_refused(session):
    with pytest.raises(ValueError, match="write it as"):
        find_flows(session, "nonsense")


def test_an_unknown_id_has_no_explanation(session):
    assert explain_flow(session, 99) is None


def test_an_alarm_is_the_cause_of_its_decision(session):
    found = explain_flow(session, 1)
    (one,) = found.decisions
    assert (one.decision.alarm_id, one.command) == (one.alarm.id, None)
    assert one.alarm.queue_bytes == 45_000
    assert (found.standing_clamp, found.commands) == (None, ())


def test_a_command_is_the_cause_of_its_decision(session):
    found = explain_flow(session, 2)
    (one,) = (one for one in found.decisions if one.command)
    assert (one.command.asked_by, one.alarm) == ("ann", None)
    assert [command.id for command in found.commands] == [77]
    assert found.standing_clamp.window_bytes == 4000


def test_the_newest_decisions_and_clamps_are_kept(session):
    whole = explain_flow(session, 2)
    newest = explain_flow(session, 2, most_decisions=1, most_clamps=1)
    assert newest.decisions == whole.decisions[:1]
    assert newest.clamps == whole.clamps[:1]
    assert newest.all_decisions == whole.all_decisions == len(whole.decisions)
    assert newest.totals == whole.totals
    assert whole.totals.count == len(whole.clamps)
    lasted = [one.lifted_ns - one.pushed_ns for one in whole.clamps if one.lifted_ns]
    assert whole.totals.lifted_after_ns == sum(lasted)


def test_json_is_oldest_first_with_datapath_ids_in_hexadecimal(session):
    values = explain_flow(session, 2).as_dict()
    times = [decision["decided_ns"] for decision in values["decisions"]]
    assert times == sorted(times)
    assert values["path"][0]["dpid"] == "0000000000000001"
    assert {"alarm", "command"} <= values["decisions"][0].keys()
