"""Live pages: one poller for all viewers, changes at the next poll, and errors."""

from __future__ import annotations

import json
import time
from itertools import islice
from threading import Thread

import pytest

from tests.support.dashboard.application import make
from tests.support.dashboard.incast_story import Story
from tests.support.database.rows import wait_written
from tests.support.waiting import wait_until
from webui.live_hub import Hub, NoSuchPage, TooManyViewers
from webui.services import services


class Pages:
    """Pages in memory, which count how often they are rendered."""

    def __init__(self):
        self.regions = {"a": "1", "b": "1"}
        self.made = 0
        self.error = None

    def __call__(self, address):
        self.made += 1
        if address != "/":
            raise NoSuchPage(address)
        if self.error:
            raise self.error
        return dict(self.regions)


@pytest.fixture
def pages():
    return Pages()


@pytest.fixture
def hub(pages):
    made = Hub(pages, (OSError,), poll_s=0.02, most_viewers=50)
    yield made
    made.close()


def news(stream, count=1):
    """The next events, without the stream's greeting."""
    found = []
    for event in stream:
        if event.startswith("event: change"):
            found.append(json.loads(event.split("data: ", 1)[1]))
        if len(found) == count:
            return found
    raise AssertionError("the stream ended")


def test_a_viewer_gets_all_regions_and_then_the_changed_ones(hub, pages):
    stream = hub.watch("/")
    events = iter(stream)
    assert news(events)[0]["regions"] == {"a": "1", "b": "1"}
    pages.regions["b"] = "2"
    assert news(events)[0]["regions"] == {"b": "2"}
    stream.close()


def test_a_viewer_that_reconnects_gets_all_regions(hub, pages):
    first = hub.watch("/")
    news(iter(first))
    first.close()
    pages.regions = {"a": "9", "b": "9"}
    again = hub.watch("/")
    assert news(iter(again))[0]["regions"] == {"a": "9", "b": "9"}


def test_fifty_viewers_cost_as_much_as_one(hub, pages):
    streams = [hub.watch("/") for _ in range(50)]
    assert hub.viewers == 50
    before, begun = pages.made, time.monotonic()
    time.sleep(0.3)
    polls = (time.monotonic() - begun) / 0.02
    assert pages.made - before <= polls + 2
    pages.regions["a"], made = "2", pages.made
    wait_until(lambda: pages.made, "the pages were made twice since", lambda count: count > made + 1)
    got = []
    threads = [Thread(target=lambda one=one: got.append(list(islice(one, 2))[1])) for one in streams]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert len(got) == 50
    assert all(event is got[0] for event in got), "the event is rendered once"
    assert json.loads(got[0].split("data: ", 1)[1])["regions"] == {"a": "2", "b": "1"}
    with pytest.raises(TooManyViewers):
        hub.watch("/")
    for stream in streams:
        stream.close()
    assert hub.viewers == 0
    wait_until(lambda: hub._thread is None, "the polling thread has ended")


def test_nothing_is_rendered_without_viewers(hub, pages):
    hub.watch("/").close()
    wait_until(lambda: hub._thread is None, "the polling thread has ended")
    made = pages.made
    time.sleep(0.1)
    assert pages.made == made


def test_an_error_shows_until_it_is_over(hub, pages):
    events = iter(hub.watch("/"))
    news(events)
    pages.error = OSError("the disk is gone")
    assert news(events)[0]["trouble"] == "the disk is gone"
    pages.error = None
    assert news(events)[0]["trouble"] == ""
    pages.error = RuntimeError("a secret")
    assert "log" in news(events)[0]["trouble"]


def test_an_unknown_page_cannot_be_watched(hub):
    with pytest.raises(NoSuchPage):
        hub.watch("/nothing")


@pytest.fixture
def app(recorded, tmp_path):
    made = make(f"sqlite:///{tmp_path}/weir.db", tmp_path, poll_s=0.05)
    yield made
    services(made).hub.close()


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("/", 200),
        ("/flows?state=punished", 200),
        ("/static/weir.css", 404),
        ("//evil", 400),
        ("", 400),
        ("/login", 404),
    ],
)
def test_only_live_pages_have_a_stream(app, address, status):
    answer = app.test_client().get("/live", query_string={"page": address}, buffered=False)
    assert answer.status_code == status
    if status == 200:
        assert answer.mimetype == "text/event-stream"
        greeting, first = islice(answer.iter_encoded(), 2)
        assert greeting.startswith(b"retry:")
        assert json.loads(first.decode().split("data: ", 1)[1])["regions"]
    answer.close()


def test_a_lift_shows_at_the_next_poll(app, recorded: Story, monkeypatch):
    flow = recorded.flows[1]
    now = recorded.db.clock.now_ns()
    clamp = recorded.punish(flow, recorded.alarm(now, 80), now, 80)
    wait_written(recorded.db)
    hub, rendered = services(app).hub, []
    monkeypatch.setattr(hub, "_render", recording(hub._render, rendered))
    events = iter(hub.watch(f"/flows/{flow.id}"))
    assert "Slowed down on purpose" in news(events)[0]["regions"]["verdict"]
    recorded.lift(clamp, now + 10**9)
    wait_written(recorded.db)
    in_progress = len(rendered)
    wait_until(lambda: rendered[in_progress + 1 :], "a poll began after the lift and has ended")
    assert "normal and burst over" in rendered[in_progress + 1]["clamps"]
    assert "normal and burst over" in news(events)[0]["regions"]["clamps"]


def recording(render, rendered):
    """``render``, which also adds each result to the list."""

    def render_and_record(address):
        rendered.append(render(address))
        return rendered[-1]

    return render_and_record
