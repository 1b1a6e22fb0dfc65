"""The port pages: values of a queue over time, and counters since the data plane was attached."""

from __future__ import annotations

import pytest
from sqlalchemy import null, update

from flowdb.engine import open_engine
from flowdb.flow import NS_PER_S
from flowdb.models import ALARM_UP, COUNTER_COLUMNS, PortRow, PortSampleRow, SwitchRow
from tests.support.dashboard.application import make
from tests.support.dashboard.incast_story import FULL, Story
from tests.support.database.rows import wait_written
from weir_base.port_counters import PORT_COUNTERS

PORT = {"dpid": 5, "port_no": 1}
NO_COUNTS = dict.fromkeys(PORT_COUNTERS, 0)


BEGIN_S = 1_000_000


@pytest.fixture
def sampled(open_db, sqlite_url, tmp_path):
    """Writes samples of a port, one each second, given as values that are not 0; returns a client."""
    db = open_db(sqlite_url)
    db.merge(PortRow, **PORT, name="s5-eth1", hw_addr="", up=True, last_seen_ns=0)

    def write(*samples):
        for at_s, values in enumerate(samples, BEGIN_S):
            db.merge(PortSampleRow, **PORT, at_ns=at_s * NS_PER_S, **PortSampleRow.split(NO_COUNTS | values))
        wait_written(db)
        return make(sqlite_url, tmp_path).test_client()

    return write


def series(client, points):
    """The series of 100 s; the samples are in the last ten."""
    query = {"span_s": 100, "points": points, "until_ns": (BEGIN_S + 10) * NS_PER_S}
    return client.get("/api/v1/ports/0000000000000005/1/series", query_string=query).json["figures"]


def test_counters_are_shown_as_increments(sampled):
    """A data plane that was attached again counts from 0."""
    client = sampled(*({"drops": drops, "clamped": 10 * drops} for drops in (5, 7, 7, 2, 3)))
    figures = series(client, points=100)
    assert figures["drops"] == [0, 2, 0, 2, 1]
    assert figures["clamped"] == [0, 20, 0, 20, 10]


def test_a_point_holds_the_worst_value_of_its_time(sampled):
    client = sampled(
        {"queue_pkts": 9, "n_i": 1, "fair_share_bytes": 9000},
        {"queue_pkts": 3, "n_i": 6, "fair_share_bytes": 1500},
        {"queue_pkts": 5, "n_i": 2, "fair_share_bytes": 4500},
    )
    figures = series(client, points=10)
    shown = (figures["queue_pkts"], figures["n_i"], figures["fair_share_bytes"])
    assert shown == ([9], [6], [1500])


@pytest.mark.parametrize(("share", "shown"), [(0, None), (1500, 1500)])
def test_a_port_without_fair_share_shows_none(sampled, share, shown):
    """Under SDTCP alone a port has no common RTT, which a fair share needs."""
    client = sampled({"fair_share_bytes": share, "capacity_bps": 10**8})
    (port,) = client.get("/api/v1/ports").json
    assert (port["fair_share_bytes"], port["capacity_bps"]) == (shown, 10**8)
    assert ("weir_port_fair_share_bytes{" in client.get("/metrics").text) == (shown is not None)


def test_api_page_and_metrics_show_every_recorded_counter(sampled):
    client = sampled({name: 1000 + place for place, name in enumerate(PORT_COUNTERS)})
    recorded = [(place, counter) for place, counter in enumerate(PORT_COUNTERS.values()) if counter.recorded]
    (port,) = client.get("/api/v1/ports").json
    assert port["counters"] == {counter.name: 1000 + place for place, counter in recorded}
    page = client.get("/ports/0000000000000005/1").text
    exported = client.get("/metrics").text
    for _, counter in recorded:
        assert f"<td>{counter.title}</td>" in page
        suffix = "_total" if counter.kind == "counter" else ""
        assert f"weir_port_{counter.name}{suffix}{{" in exported


def test_a_sample_of_an_older_version_has_only_the_counters_with_columns(sampled, open_db, sqlite_url):
    client = sampled({"drops": 3})
    with open_engine(sqlite_url).begin() as connection:
        connection.execute(update(PortSampleRow).values(other_counters=null()))
    (port,) = client.get("/api/v1/ports").json
    assert set(port["counters"]) == set(COUNTER_COLUMNS)
    assert (port["drops"], port["counters"]["drops"]) == (3, 3)


def test_an_interval_holds_its_own_alarms_and_clamps(open_db, url, tmp_path):
    """Also if later ones are more than one answer holds, and if the clamp began earlier."""
    db = open_db(url)
    db.merge(PortRow, dpid=FULL[0], port_no=FULL[1], name="s5-eth1", hw_addr="", up=True, last_seen_ns=0)
    story, begin_ns = Story(db), BEGIN_S * NS_PER_S
    flow = story.flow("10.0.5.2", 40_000, begin_ns)
    spans_s = {
        "early": (-5, 20),
        "inside": (12, 13),
        "standing": (-9, None),
        "before": (-9, -8),
        "after": (30, 31),
    }
    clamps = {}
    for name, (pushed_s, lifted_s) in spans_s.items():
        alarm_ns = begin_ns + 40 * NS_PER_S
        clamps[name] = story.punish(flow, story.alarm(alarm_ns, 40), begin_ns + pushed_s * NS_PER_S, 40)
        if lifted_s is not None:
            story.lift(clamps[name], begin_ns + lifted_s * NS_PER_S)
    for after_ms in (-1, 15_000, *range(20_001, 20_600)):
        story.alarm(begin_ns + after_ms * 1_000_000, 40)
    wait_written(db)
    query = {"span_s": 20, "points": 10, "until_ns": begin_ns + 20 * NS_PER_S}
    client = make(url, tmp_path).test_client()
    found = client.get("/api/v1/ports/0000000000000005/1/series", query_string=query).json
    assert [one["received_ns"] // NS_PER_S - BEGIN_S for one in found["alarms"]] == [15]
    names = {clamp_id: name for name, clamp_id in clamps.items()}
    assert {names[one["id"]] for one in found["clamps"]} == {"early", "inside", "standing"}


def test_alarms_without_a_decision_are_counted_to_the_end_of_the_episode(open_db, url, tmp_path):
    db = open_db(url)
    db.merge(PortRow, dpid=FULL[0], port_no=FULL[1], name="s5-eth1", hw_addr="", up=True, last_seen_ns=0)
    story, at_ns = Story(db), db.clock.now_ns()
    story.alarm(at_ns - NS_PER_S, 40, repeats=3)
    story.alarm(at_ns, 0, kind="normal", repeats=500)
    wait_written(db)
    client = make(url, tmp_path).test_client()
    found = client.get("/api/v1/busiest?span_s=60").json["alarms"]
    assert sum(found["alarms"]) == 1 + 3 + 500
    assert client.get("/api/v1/totals").json["alarms_last_hour"] == 1 + 3 + 500


@pytest.mark.parametrize(
    ("alarms", "is_up"),
    [
        ([], False),
        ([("alarm", 5)], True),
        ([("alarm", 5), ("normal", 1)], False),
        ([("normal", 5), ("alarm", 1)], True),
        ([("alarm", 700)], False),
    ],
)
def test_an_alarm_counts_until_its_end_or_its_age_limit(open_db, url, tmp_path, alarms, is_up):
    db = open_db(url)
    db.merge(PortRow, **PORT, name="s5-eth1", hw_addr="", up=True, last_seen_ns=0)
    for kind, ago_s in alarms:
        Story(db).alarm(db.clock.now_ns() - ago_s * NS_PER_S, 40, kind=kind)
    wait_written(db)
    (port,) = make(url, tmp_path).test_client().get("/api/v1/ports").json
    assert port["alarm_up"] is is_up


@pytest.mark.parametrize(
    ("after_s", "counters", "is_up"),
    [
        (3, {}, False),
        (3, {ALARM_UP: 1}, True),
        (0.5, {}, True),
        (-3, {}, True),
        (3, ALARM_UP, True),
        (3, None, True),
    ],
    ids=[
        "over",
        "lasts",
        "perhaps from before the alarm",
        "from before the alarm",
        "of an older version",
        "of a still older version",
    ],
)
def test_a_sample_shows_the_end_of_an_alarm_if_its_message_was_lost(
    open_db, url, tmp_path, after_s, counters, is_up
):
    db = open_db(url)
    db.merge(PortRow, **PORT, name="s5-eth1", hw_addr="", up=True, last_seen_ns=0)
    at_ns = db.clock.now_ns() - 10 * NS_PER_S
    Story(db).alarm(at_ns, 40)
    sample = PortSampleRow.split(NO_COUNTS | (counters if isinstance(counters, dict) else {}))
    if counters is None:
        del sample["other_counters"]
    elif counters == ALARM_UP:
        del sample["other_counters"][ALARM_UP]
    db.merge(PortSampleRow, **PORT, at_ns=at_ns + int(after_s * NS_PER_S), **sample)
    wait_written(db)
    client = make(url, tmp_path).test_client()
    (port,) = client.get("/api/v1/ports").json
    assert port["alarm_up"] is is_up
    assert client.get("/api/v1/totals").json["alarms_up"] == is_up


@pytest.mark.parametrize("connected", [True, False])
def test_no_alarm_is_up_at_a_switch_that_is_not_connected(open_db, url, tmp_path, connected):
    db = open_db(url)
    db.merge(PortRow, **PORT, name="s5-eth1", hw_addr="", up=True, last_seen_ns=0)
    db.merge(SwitchRow, dpid=PORT["dpid"], connected=connected, last_seen_ns=0)
    Story(db).alarm(db.clock.now_ns(), 40)
    wait_written(db)
    (port,) = make(url, tmp_path).test_client().get("/api/v1/ports").json
    assert port["alarm_up"] is connected
