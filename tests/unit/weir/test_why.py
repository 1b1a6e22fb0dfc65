"""`weir why`: the whole explanation, from what the SDTCP app recorded."""

import json

import pytest
from alembic import command
from click.testing import CliRunner
from sqlalchemy import delete, insert, select, update

from flowdb import schema
from flowdb.clock import Clock
from flowdb.engine import SchemaMismatch, open_engine
from flowdb.flow import NS_PER_S
from flowdb.models import AlarmRow, ClampRow, DecisionRow, FlowRow, HopRow, RunRow
from tests.support.controllers.sdtcp_history import KEY, record
from weir.cli import weir


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    monkeypatch.delenv("WEIR_CONFIG", raising=False)
    record(tmp_path / "weir.db")
    return f"{tmp_path}/weir.db"


def explain(recorded, *arguments, columns=160):
    done = CliRunner().invoke(weir, ["why", *arguments, "--db", recorded], env={"COLUMNS": str(columns)})
    assert done.exit_code == 0, done.output
    return done.output


def test_every_step_of_a_decision_is_shown(recorded):
    text = explain(recorded, str(KEY))
    for phrase in (
        "chosen for port 0000000000000001:3 by longest-lived-active",
        "BUF_ALARM: 30 packets, 45000 bytes in the queue",
        "from 3 candidates",
        "W_c = (100 Mbit/s x 250 us + 45000) / 2 = 24062 bytes",
        "W_r' = max(min(24062 / 2, W_r 33553920), MSS 1460) = 12031 bytes",
        "5 MSS less with each ACK, down to one MSS, or to the",
        "flow's part of the allowance if the port corrects it",
        "switch 0000000000000001 table 0: 10.0.0.3:80>10.0.0.1:1000",
        "mod_window:12031,alpha:5, idle 5 s, hard 30 s",
        "answer    done, ",
        "flow closed",
        "closed ",
    ):
        assert phrase in text
    ranking = [line.split()[1] for line in text.splitlines() if ">10.0.0.3:80  " in line and "MB" in line]
    assert ranking == ["10.0.0.1:1000>10.0.0.3:80", "10.0.0.2:1000>10.0.0.3:80", "10.0.0.4:1000>10.0.0.3:80"]


def test_an_allowance_is_shown_in_the_place_of_capacity_and_rtt(recorded):
    with open_engine(f"sqlite:///{recorded}").begin() as connection:
        connection.execute(update(DecisionRow).values(allowance_bytes=3_124))
    assert "W_c = (allowance 3124 + 45000) / 2 = 24062 bytes" in explain(recorded, "1")


def test_a_share_that_each_ack_lowers_is_shown_so(recorded):
    """A port that corrects its allowance gets equation (5) as MOD_WINDOW, too."""
    for alpha, is_lowered in ((5, True), (0, False)):
        with open_engine(f"sqlite:///{recorded}").begin() as connection:
            connection.execute(update(DecisionRow).values(equation=5, alpha=alpha))
        text = explain(recorded, "1")
        assert "all flows are slowed" in text
        assert ("5 MSS less with each ACK" in text) is is_lowered


def test_the_delay_of_an_alarm_is_shown_if_it_is_known(recorded):
    """A repeated alarm has the time of its check, and an alarm of another clock the time of its arrival."""
    assert "45000 bytes in the queue\n" in explain(recorded, "1")
    for delay_us, phrase in ((184, "in the queue, received 184 us later\n"), (-9, "in the queue\n")):
        with open_engine(f"sqlite:///{recorded}").begin() as connection:
            crossing_ns = AlarmRow.received_ns - delay_us * 1000
            connection.execute(update(AlarmRow).values(crossing_ns=crossing_ns))
        text = explain(recorded, "1")
        assert phrase in text
        assert "crossing" not in text


def test_a_punishment_by_hand_names_its_requester(recorded):
    text = explain(recorded, "2")
    assert "chosen by hand" in text
    assert 'ann requested it: punish {"flow": 2, "window_bytes": 4000}' in text
    assert "4000 bytes, as requested" in text
    assert "answer    none yet" in text
    assert "not lifted" in text


@pytest.mark.parametrize(
    ("silent_s", "ended", "is_gone"), [(0, False, False), (60, False, True), (0, True, True)]
)
def test_a_clamp_whose_controller_is_gone_does_not_last_until_now(recorded, silent_s, ended, is_gone):
    """No other controller has started since, so nobody recorded its end."""
    last_seen_ns = Clock().now_ns() - silent_s * NS_PER_S
    with open_engine(f"sqlite:///{recorded}").begin() as connection:
        times = {"last_seen_ns": last_seen_ns, "ended_ns": last_seen_ns if ended else None}
        connection.execute(update(RunRow).values(times))
        connection.execute(update(ClampRow).values(pushed_ns=last_seen_ns - 7 * NS_PER_S))
    text = explain(recorded, "2", columns=80)
    assert ("until now" in text) is not is_gone
    assert ("7 s or more" in text) is is_gone
    assert ("its controller is gone" in " ".join(text.split())) is is_gone
    assert max(map(len, text.splitlines())) <= 80
    (clamp,) = json.loads(explain(recorded, "2", "--json"))["flows"][0]["clamps"]
    assert clamp["left_open_ns"] == (last_seen_ns if is_gone else None)


def test_the_text_fits_80_columns(recorded):
    lines = "\n".join(explain(recorded, flow, columns=80) for flow in ("1", "2")).splitlines()
    assert max(map(len, lines)) <= 80
    assert not [line for line in lines if "\u2026" in line]
    assert any("10.0.0.1:1000>10.0.0.3:80 " in line and "active" in line for line in lines)


def test_json_has_every_column(recorded):
    (about,) = json.loads(explain(recorded, "1", "--json"))["flows"]
    assert about["flow"]["src"] == "10.0.0.1"
    assert about["path"][0]["dpid"] == "0000000000000001"
    (decision,) = about["decisions"]
    assert decision["alarm"]["queue_bytes"] == 45_000
    assert decision["command"] is None
    assert decision["entry"]["match"] == "10.0.0.3:80>10.0.0.1:1000"
    assert [one["flow_id"] for one in decision["ranking"]] == [1, 2, 4]
    assert about["clamps"][0]["lift_reason"] == "flow closed"


def test_a_decision_that_was_only_observed_is_named_so(recorded):
    assert "no packet was changed" not in explain(recorded, "1")
    with open_engine(f"sqlite:///{recorded}").begin() as connection:
        entry = connection.execute(select(DecisionRow.entry).where(DecisionRow.flow_id == 1)).scalar_one()
        connection.execute(update(DecisionRow).values(entry=entry | {"observed": True}))
        connection.execute(delete(ClampRow))
    text = explain(recorded, "1")
    assert "SDTCP observed, and did not slow it down." in text
    assert "no packet was changed" in text


def test_a_flow_that_was_clamped_before_weir_observed_was_slowed_down(recorded):
    """The newest decisions do not say what earlier ones did; the clamps do."""
    with open_engine(f"sqlite:///{recorded}").begin() as connection:
        newest = connection.execute(select(DecisionRow).where(DecisionRow.flow_id == 1)).mappings().one()
        later = {"id": newest["id"] + 10**6, "decided_ns": newest["decided_ns"] + 10**9}
        observed = {"entry": newest["entry"] | {"observed": True}}
        connection.execute(insert(DecisionRow).values({**newest, **later, **observed}))
    text = explain(recorded, "1", "--last", "1")
    assert "no packet was changed" in text
    assert "did not slow it down" not in text
    assert "flow closed" in text, "the clamp is shown"


def test_a_flow_without_decisions_may_have_been_slowed_down(recorded):
    """SCCP and the mode "weights" record no decision, and old decisions are deleted."""
    text = explain(recorded, "4", columns=80)
    assert "The database holds no decision of SDTCP about it." in text
    assert 'SDTCP\'s mode "weights"' in text
    assert "count the ACKs that SCCP clamps" in text
    assert "never" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_what_is_unknown_of_a_flow_is_named_so(recorded):
    with open_engine(f"sqlite:///{recorded}").begin() as connection:
        connection.execute(update(FlowRow).values(receiver_wscale=None))
        connection.execute(delete(HopRow))
    assert "receiver's window scale unknown; path unknown\n" in explain(recorded, "4")


def test_the_number_of_older_decisions_is_stated(recorded):
    assert "Not shown" not in explain(recorded, "1")
    with open_engine(f"sqlite:///{recorded}").begin() as connection:
        newest = connection.execute(select(DecisionRow).where(DecisionRow.flow_id == 1)).mappings().one()
        for number in range(1, 4):
            later = {"id": newest["id"] + number * 10**6, "decided_ns": newest["decided_ns"] + number}
            connection.execute(insert(DecisionRow).values({**newest, **later}))
    text = explain(recorded, "1", "--last", "3")
    assert "Not shown: 1 of 4 decisions, the oldest; raise --last" in text
    (about,) = json.loads(explain(recorded, "1", "--last", "3", "--json"))["flows"]
    assert (len(about["decisions"]), about["all_decisions"]) == (3, 4)


def test_the_number_of_older_flows_is_stated(recorded):
    assert "older flows" not in explain(recorded, str(KEY))
    with open_engine(f"sqlite:///{recorded}").begin() as connection:
        flow = connection.execute(select(FlowRow).where(FlowRow.id == 1)).mappings().one()
        for number in range(1, 12):
            later = {"id": flow["id"] + number * 10**6, "opened_ns": flow["opened_ns"] + number}
            connection.execute(insert(FlowRow).values({**flow, **later}))
    text = explain(recorded, str(KEY))
    assert text.count(f"  {KEY}\n") == 10
    assert "2 older flows have this 5-tuple. Name one by its id." in text
    found = json.loads(explain(recorded, str(KEY), "--json"))
    assert (len(found["flows"]), found["all_flows"]) == (10, 12)


def test_at_least_one_decision_is_shown(recorded):
    done = CliRunner().invoke(weir, ["why", "1", "--last", "0", "--db", recorded])
    assert done.exit_code == 2
    assert "--last" in done.output


def test_an_older_database_is_refused_with_the_remedy(tmp_path):
    file = tmp_path / "old.db"
    with open_engine(f"sqlite:///{file}").begin() as connection:
        command.upgrade(schema._config(connection), schema.BEFORE_VERSIONS)
    done = CliRunner().invoke(weir, ["why", "1", "--db", str(file)])
    assert isinstance(done.exception, SchemaMismatch)
    assert "`weir db upgrade`" in str(done.exception)


@pytest.mark.parametrize(
    ("flow", "message"),
    [
        ("99", "holds no flow 99"),
        ("99999999999999999999", "holds no flow 99999999999999999999"),
        ("10.0.0.9:1>10.0.0.3:80", "holds no flow"),
        ("nonsense", "is not a flow"),
    ],
)
def test_an_unknown_flow_is_refused(recorded, flow, message):
    done = CliRunner().invoke(weir, ["why", flow, "--db", recorded])
    assert done.exit_code == 1
    assert message in done.output
