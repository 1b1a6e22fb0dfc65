"""The API against its OpenAPI document, the metrics for Prometheus, and Grafana's dashboard."""

from __future__ import annotations

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from prometheus_client.parser import text_string_to_metric_families
from schemathesis.specs.openapi.checks import positive_data_acceptance

from flowdb.models import OBSERVES, PortSampleRow, SwitchRow
from tests.support.dashboard.application import make, told_in
from tests.support.database.rows import put_run_ahead, wait_written
from tests.support.fuzzing.api import ApiTarget, ParametersTarget, RequestsTarget
from tests.support.fuzzing.short import assert_withstands
from webui.access.accounts import Accounts
from webui.api import endpoint, v1
from webui.api.document import document, path_of
from webui.api.endpoint import ENDPOINTS
from weir_base.paths import PROJECT
from weir_base.port_counters import PORT_COUNTERS

GRAFANA = PROJECT / "packaging" / "grafana-dashboard.json"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("api")
    with told_in(folder, seconds=60) as story:
        yield make(story.url, folder), story


@pytest.fixture
def client(recorded):
    return recorded[0].test_client()


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda one: one.name)
def test_every_answer_matches_the_openapi_document(recorded, endpoint):
    """Schemathesis sends requests, some of which match the document and some do not.

    One check is left out: what no schema can say (an address, a port that needs its switch) gets 400.
    """
    described = schemathesis.openapi.from_wsgi("/api/v1/openapi.json", recorded[0])
    operation = described[path_of(endpoint)][endpoint.method.upper()]

    @given(case=operation.as_strategy())
    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    def ask(case):
        case.call_and_validate(excluded_checks=[positive_data_acceptance])

    ask()


def test_no_request_causes_an_internal_error():
    assert_withstands("api", ApiTarget(), 2_000, accepted=(0.1, 0.9))


@pytest.mark.parametrize(("name", "target"), [("requests", RequestsTarget), ("parameters", ParametersTarget)])
def test_no_request_fails_before_its_first_query(name, target):
    assert_withstands(name, target(), 1_000, accepted=(0.1, 0.9))


def test_json_that_is_nested_too_deeply_is_refused(recorded, tmp_path):
    client = make(recorded[1].url, tmp_path).test_client()
    token = Accounts(tmp_path / "accounts.json").add_token("deep", "act")
    headers = {"Authorization": f"Bearer {token}"}
    for deep in ("[" * 5000, '{"kind":' * 5000):
        refused = client.post("/api/v1/commands", data=deep, content_type="application/json", headers=headers)
        assert (refused.status_code, "is not JSON" in refused.json["detail"]) == (400, True)


def test_the_document_names_every_endpoint(client):
    served = client.get("/api/v1/openapi.json").json
    assert served == json.loads(json.dumps(document()))
    operations = {one["operationId"] for path in served["paths"].values() for one in path.values()}
    assert operations == {endpoint.name for endpoint in ENDPOINTS}


def test_a_series_shows_the_busy_port(client):
    found = client.get("/api/v1/ports/0000000000000005/1/series?span_s=600&points=600").json
    figures = found["figures"]
    assert len(figures["at_ns"]) == len(figures["queue_pkts"]) == len(figures["drops"]) > 50
    assert max(figures["queue_pkts"]) > 50
    assert [one["kind"] for one in found["alarms"]] == ["alarm"]
    assert found["clamps"][0]["lifted_ns"] is None


def test_simultaneous_equal_requests_run_one_query(recorded, tmp_path, monkeypatch):
    """Viewers request a chart at the same time when their page changed."""
    client, chosen = make(recorded[1].url, tmp_path).test_client, v1.busiest
    monkeypatch.setattr(endpoint, "current_poll", lambda: 1)
    made = []

    def slowly(*args):
        made.append(args)
        time.sleep(0.1)
        return chosen(*args)

    monkeypatch.setattr(v1, "busiest", slowly)
    with ThreadPoolExecutor(20) as viewers:
        answers = list(viewers.map(lambda _: client().get("/api/v1/busiest?span_s=60").data, range(20)))
    assert len(set(answers)) == 1
    assert len(made) == 1


def test_a_bottleneck_is_the_port_of_the_destination(client):
    (found,) = client.get("/api/v1/bottlenecks?to=10.0.5.1,10.9.9.9").json
    newest = client.get("/api/v1/ports/0000000000000005/1").json
    assert (found["to"], found["port"]["name"]) == ("10.0.5.1", "s5-eth1")
    assert found["n_i"] == newest["n_i"] > 0
    assert found["capacity_bps"] == newest["capacity_bps"]
    assert (found["buffer_bytes"], found["allowance_bytes"]) == (0, 0), "the story has neither"
    assert 0 <= found["age_s"] < 120


@pytest.mark.parametrize("hours", [-7, 7])
def test_ages_do_not_follow_the_clock_of_the_machine(recorded, tmp_path, monkeypatch, hours):
    """Somebody sets the clock while the controller runs, and starts the dashboard again."""
    unset = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: unset() + hours * 3600 * 10**9)
    client = make(recorded[1].url, tmp_path).test_client()
    assert [run["alive"] for run in client.get("/api/v1/controllers").json] == [True]
    (found,) = client.get("/api/v1/bottlenecks?to=10.0.5.1").json
    assert 0 < found["age_s"] < 120
    series = client.get("/api/v1/ports/0000000000000005/1/series?span_s=600&points=600").json
    assert len(series["figures"]["at_ns"]) > 50, "the last minutes end now"


def test_a_controller_whose_clock_was_ahead_is_not_alive_for_ever(tmp_path):
    with told_in(tmp_path, seconds=2) as story:
        put_run_ahead(story.url)
        client = make(story.url, tmp_path).test_client()
        alive = {run["host"]: run["alive"] for run in client.get("/api/v1/controllers").json}
        assert (alive.pop("another"), list(alive.values())) == (False, [True])
        assert client.get("/api/v1/totals").json["controllers"] == 1


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("", "to: Field required"),
        ("to=10.0.5.1,nobody", "'nobody' does not appear"),
        ("to=10.0.5.1,", "does not appear to be"),
        ("to=" + ",".join(f"10.0.0.{n}" for n in range(65)), "at most 64"),
    ],
)
def test_destinations_that_cannot_be_are_refused(client, query, why):
    refused = client.get(f"/api/v1/bottlenecks?{query}")
    assert (refused.status_code, why in refused.json["detail"]) == (400, True), refused.json


def test_a_policy_with_a_nul_is_refused(client):
    """PostgreSQL takes none, and its error would be answered as if the database were down."""
    refused = client.get("/api/v1/flows?policy=a%00b")
    assert (refused.status_code, "policy: " in refused.json["detail"]) == (400, True)


def test_a_bottleneck_states_b_and_the_allowance_and_needs_its_switch(tmp_path):
    """Windows carry n only if the port writes shares into them, and so does not observe."""
    with told_in(tmp_path, seconds=2) as story:
        client = make(story.url, tmp_path).test_client()
        at_ns = story.db.clock.now_ns()
        counted = {"n_i": 7, "fair_share_bytes": 900, "allowance_bytes": 6300, "buffer_bytes": 150_000}
        for seconds, (observes, allowance) in enumerate(((0, 6300), (1, 0)), 1):
            record = dict.fromkeys(PORT_COUNTERS, 0) | counted | {OBSERVES: observes}
            sampled_ns = at_ns + seconds
            story.db.merge(PortSampleRow, dpid=5, port_no=1, at_ns=sampled_ns, **PortSampleRow.split(record))
            wait_written(story.db)
            (found,) = client.get("/api/v1/bottlenecks?to=10.0.5.1").json
            assert (found["n_i"], found["buffer_bytes"]) == (7, 150_000)
            assert found["allowance_bytes"] == allowance
        story.db.merge(SwitchRow, dpid=5, connected=False, last_seen_ns=at_ns)
        wait_written(story.db)
        assert client.get("/api/v1/bottlenecks?to=10.0.5.1").json == []


def test_a_flow_has_its_path_decisions_and_verdict(client, recorded):
    found = client.get(f"/api/v1/flows/{recorded[1].flows[0].id}").json
    assert found["state"] == "punished"
    assert [hop["port"]["name"] for hop in found["path"]] == ["s3-eth5", "s1-eth3", "s5-eth1"]
    assert found["decisions"][0]["ranking"][0]["flow_id"] == recorded[1].flows[0].id


def test_events_are_filtered_by_port(client):
    of_port = "dpid=5&port_no=1"
    assert len(client.get(f"/api/v1/decisions?{of_port}").json["items"]) == 1
    assert len(client.get(f"/api/v1/clamps?standing=true&{of_port}").json["items"]) == 1
    assert client.get("/api/v1/alarms?dpid=3&port_no=1").json["items"] == []
    refused = client.get("/api/v1/alarms?dpid=3")
    assert (refused.status_code, "give both or none" in refused.json["detail"]) == (400, True)


def metrics(client):
    return {
        sample.name: sample
        for family in text_string_to_metric_families(client.get("/metrics").text)
        for sample in family.samples
        if sample.labels.get("name") in (None, "s5-eth1")
    }


def test_prometheus_metrics_have_the_values_of_the_database(client):
    found = metrics(client)
    assert found["weir_database_up"].value == 1
    assert found["weir_port_alarm"].value == 1
    assert found["weir_clamps"].value == 1
    assert found["weir_port_queue_pkts"].value > 20
    assert found["weir_port_drops_total"].labels["dpid"] == f"{5:016x}"


def test_grafanas_dashboard_uses_existing_metrics(client):
    panels = json.loads(GRAFANA.read_text())["panels"]
    asked = {
        name for panel in panels for one in panel["targets"] for name in re.findall(r"weir_\w+", one["expr"])
    }
    assert len(panels) >= 6
    assert asked <= metrics(client).keys()
