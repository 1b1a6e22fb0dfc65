"""What the port pages make of samples: moments of a queue, counters since the switch's agent began."""

from __future__ import annotations

import pytest

from flowdb.flow import NS_PER_S
from flowdb.models import PortRow, PortSampleRow
from tests.story import Story
from tests.unit.web import make, settled

PORT = {"dpid": 5, "port_no": 1}
NAMES = [column.name for column in PortSampleRow.__table__.columns if not column.primary_key]


BEGIN_S = 1_000_000


@pytest.fixture
def sampled(open_db, sqlite_url, tmp_path):
    """A port with samples, given as what differs from 0, a second each; then its pages' client."""
    db = open_db(sqlite_url)
    db.merge(PortRow, **PORT, name="s5-eth1", hw_addr="", up=True, last_seen_ns=0)

    def tell(*samples):
        for at_s, values in enumerate(samples, BEGIN_S):
            db.merge(PortSampleRow, **PORT, at_ns=at_s * NS_PER_S, **dict.fromkeys(NAMES, 0) | values)
        settled(db)
        return make(sqlite_url, tmp_path).test_client()

    return tell


def series(client, points):
    """A hundred seconds, of which the samples are the last ten."""
    query = {"span_s": 100, "points": points, "until_ns": (BEGIN_S + 10) * NS_PER_S}
    return client.get("/api/v1/ports/0000000000000005/1/series", query_string=query).json["figures"]


def test_counters_are_shown_as_what_they_grew_by(sampled):
    """An agent that began anew counts from 0 again."""
    client = sampled(*({"drops": drops, "clamped": 10 * drops} for drops in (5, 7, 7, 2, 3)))
    figures = series(client, points=100)
    assert figures["drops"] == [0, 2, 0, 2, 1]
    assert figures["clamped"] == [0, 20, 0, 20, 10]


def test_a_point_is_the_worst_of_its_span(sampled):
    client = sampled(
        {"queue_pkts": 9, "n_i": 1, "fair_share_bytes": 9000},
        {"queue_pkts": 3, "n_i": 6, "fair_share_bytes": 1500},
        {"queue_pkts": 5, "n_i": 2, "fair_share_bytes": 4500},
    )
    figures = series(client, points=10)
    shown = (figures["queue_pkts"], figures["n_i"], figures["fair_share_bytes"])
    assert shown == ([9], [6], [1500])


@pytest.mark.parametrize(("share", "shown"), [(0, None), (1500, 1500)])
def test_a_port_that_gives_no_share_shows_none(sampled, share, shown):
    """Under SDTCP alone no port has a common RTT to make one of."""
    client = sampled({"fair_share_bytes": share, "capacity_bps": 10**8})
    (port,) = client.get("/api/v1/ports").json
    assert (port["fair_share_bytes"], port["capacity_bps"]) == (shown, 10**8)
    assert ("weir_port_fair_share_bytes{" in client.get("/metrics").text) == (shown is not None)


@pytest.mark.parametrize(
    ("told", "is_up"),
    [
        ([], False),
        ([("alarm", 5)], True),
        ([("alarm", 5), ("normal", 1)], False),
        ([("normal", 5), ("alarm", 1)], True),
        ([("alarm", 700)], False),
    ],
)
def test_an_alarm_counts_until_it_is_over_or_old(open_db, url, tmp_path, told, is_up):
    db = open_db(url)
    db.merge(PortRow, **PORT, name="s5-eth1", hw_addr="", up=True, last_seen_ns=0)
    for kind, ago_s in told:
        Story(db).alarm(db.clock.now_ns() - ago_s * NS_PER_S, 40, kind=kind)
    settled(db)
    (port,) = make(url, tmp_path).test_client().get("/api/v1/ports").json
    assert port["alarm_up"] is is_up
