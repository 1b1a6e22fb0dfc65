"""`weir why`: the whole answer, from what the app recorded."""

import json

import pytest
from click.testing import CliRunner

from tests.unit.recorded import KEY, record
from weir.cli import weir


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    monkeypatch.delenv("WEIR_CONFIG", raising=False)
    record(tmp_path / "weir.db")
    return f"{tmp_path}/weir.db"


def ask(recorded, *arguments):
    done = CliRunner().invoke(weir, ["why", *arguments, "--db", recorded], env={"COLUMNS": "160"})
    assert done.exit_code == 0, done.output
    return done.output


def test_the_whole_answer(recorded):
    text = ask(recorded, str(KEY))
    for said in (
        "chosen for port 0000000000000001:3 by longest-lived-active",
        "BUF_ALARM: 30 packets, 45000 bytes in the queue",
        "of 3 candidates",
        "W_c = (100 Mbit/s x 250 us + 45000) / 2 = 24062 bytes",
        "W_r' = max(min(24062 / 2, W_r 33553920), MSS 1460) = 12031 bytes",
        "5 MSS less with each ACK",
        "switch 0000000000000001 table 0: 10.0.0.3:80>10.0.0.1:1000",
        "mod_window:12031,alpha:5, idle 5 s, hard 30 s",
        "answer    done, ",
        "flow closed",
        "closed ",
    ):
        assert said in text
    ranking = [line.split()[1] for line in text.splitlines() if ">10.0.0.3:80  " in line and "MB" in line]
    assert ranking == ["10.0.0.1:1000>10.0.0.3:80", "10.0.0.2:1000>10.0.0.3:80", "10.0.0.4:1000>10.0.0.3:80"]


def test_by_hand(recorded):
    text = ask(recorded, "2")
    assert "chosen by hand" in text
    assert 'ann asked for it: punish {"flow": 2, "window_bytes": 4000}' in text
    assert "4000 bytes, as asked" in text
    assert "answer    none yet" in text
    assert "it is not lifted" in text


def test_as_json(recorded):
    (about,) = json.loads(ask(recorded, "1", "--json"))["flows"]
    assert about["flow"]["src"] == "10.0.0.1"
    assert about["path"][0]["dpid"] == "0000000000000001"
    (decision,) = about["decisions"]
    assert decision["alarm"]["queue_bytes"] == 45_000
    assert decision["command"] is None
    assert decision["entry"]["match"] == "10.0.0.3:80>10.0.0.1:1000"
    assert [one["flow_id"] for one in decision["ranking"]] == [1, 2, 4]
    assert about["clamps"][0]["lift_reason"] == "flow closed"


def test_a_flow_that_was_left_alone(recorded):
    assert "It was never slowed down." in ask(recorded, "4")


@pytest.mark.parametrize(
    ("flow", "said"),
    [("99", "holds no flow 99"), ("10.0.0.9:1>10.0.0.3:80", "holds no flow"), ("nonsense", "is no flow")],
)
def test_what_is_not_there(recorded, flow, said):
    done = CliRunner().invoke(weir, ["why", flow, "--db", recorded])
    assert done.exit_code == 1
    assert said in done.output
