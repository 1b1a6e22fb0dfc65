"""The hub of the live pages: one poller reads the database for all viewers and sends each the changes.

A viewer watches a page by its address. While a page has viewers, the poller renders its regions once for all
of them, and each viewer gets the regions that changed since its last event. A viewer that connects, or
connects again, gets all regions, so the hub needs no history.

NoSuchPage        the address does not belong to a live page
TooManyViewers    the limit of viewers is reached
TooManyOfClient   the limit of viewers of one client is reached
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from threading import Condition, Lock, Thread

KEEP_ALIVE_S = 15.0
MAX_STREAM_S = 600.0
"""A stream ends after this time and the browser connects again, which checks its permission again."""
LOG = logging.getLogger(__name__)

Regions = Mapping[str, str]


class NoSuchPage(LookupError):
    """The address does not belong to a live page."""


class TooManyViewers(RuntimeError):
    """The limit of viewers is reached."""


class TooManyOfClient(RuntimeError):
    """The limit of viewers of one client is reached."""


@dataclass
class _Watched:
    """A page with viewers: each region with the version in which it last changed.

    ``events``: the event for viewers that have seen a version, rendered once for all of them.
    """

    changed: Condition
    viewers: int = 0
    version: int = 0
    regions: dict[str, tuple[int, str]] = field(default_factory=dict)
    trouble: str = ""
    events: dict[int, str] = field(default_factory=dict)

    def update(self, regions: Regions, trouble: str) -> bool:
        """Store the page's new regions; returns whether anything changed."""
        changed = {name for name, html in regions.items() if self.regions.get(name, (0, None))[1] != html}
        if not changed and trouble == self.trouble and self.version:
            return False
        self.version += 1
        self.trouble = trouble
        self.events.clear()
        for name in changed:
            self.regions[name] = self.version, regions[name]
        return True

    def event_since(self, seen: int) -> str:
        """The changes after the version ``seen``, as a server-sent event."""
        if seen not in self.events:
            newer = {name: html for name, (version, html) in self.regions.items() if version > seen}
            changes = json.dumps({"regions": newer, "trouble": self.trouble})
            self.events[seen] = f"event: change\ndata: {changes}\n\n"
        return self.events[seen]


class Stream:
    """A viewer's events. The server always calls ``close``, which ends the watching."""

    def __init__(self, events: Iterator[str], leave: Callable[[], None]) -> None:
        self._events = events
        self._leave: Callable[[], None] | None = leave

    def __iter__(self) -> Iterator[str]:
        return self._events

    def close(self) -> None:
        leave, self._leave = self._leave, None
        if leave is not None:
            leave()


class Hub:
    """The streams of live pages.

    ``render`` returns a page's regions for its address, or raises NoSuchPage. ``shown_errors``: errors whose
    message the viewers see; of other errors they only learn that one occurred.
    """

    def __init__(
        self,
        render: Callable[[str], Regions],
        shown_errors: tuple[type[Exception], ...],
        poll_s: float = 0.5,
        most_viewers: int = 100,
        most_of_client: int = 100,
    ) -> None:
        self._render = render
        self._shown_errors = shown_errors
        self._poll_s = poll_s
        self._most_viewers = most_viewers
        self._most_of_client = most_of_client
        self._of_clients: Counter[str] = Counter()
        self._watched: dict[str, _Watched] = {}
        self._lock = Lock()
        self._thread: Thread | None = None
        self._closed = False

    @property
    def viewers(self) -> int:
        with self._lock:
            return sum(page.viewers for page in self._watched.values())

    def watch(self, address: str, client: str = "", is_admitted: Callable[[], bool] = lambda: True) -> Stream:
        """The events of a page. Raises NoSuchPage, TooManyViewers and TooManyOfClient immediately.

        The stream ends when ``is_admitted`` is no longer true.
        """
        with self._lock:
            page = self._watched.get(address)
            self._require_room(client)
        if page is None:
            page = _Watched(Condition(self._lock))
            self._refresh(address, page)
        with self._lock:
            self._require_room(client)
            page = self._watched.setdefault(address, page)
            page.viewers += 1
            self._of_clients[client] += 1
            if self._thread is None:
                self._thread = Thread(target=self._poll, name="live-poller", daemon=True)
                self._thread.start()
        return Stream(self._events(page, is_admitted), lambda: self._leave(address, page, client))

    def close(self) -> None:
        """End every stream, because the server stops."""
        with self._lock:
            self._closed = True
            for page in self._watched.values():
                page.changed.notify_all()

    def _require_room(self, client: str) -> None:
        if self._of_clients[client] >= self._most_of_client:
            raise TooManyOfClient(
                f"the limit of {self._most_of_client} open live pages of one client is reached"
            )
        if self._of_clients.total() >= self._most_viewers:
            raise TooManyViewers(f"the limit of {self._most_viewers} open live pages is reached")

    def _events(self, page: _Watched, is_admitted: Callable[[], bool]) -> Iterator[str]:
        seen, ends_s = 0, time.monotonic() + MAX_STREAM_S
        yield "retry: 1000\n\n"
        while time.monotonic() < ends_s:
            with self._lock:
                has_changes = page.changed.wait_for(partial(self._has_changes, page, seen), KEEP_ALIVE_S)
                if self._closed:
                    return
                event = page.event_since(seen) if has_changes else ": keep-alive\n\n"
                seen = page.version
            if not is_admitted():
                return
            yield event

    def _has_changes(self, page: _Watched, seen: int) -> bool:
        return self._closed or page.version > seen

    def _leave(self, address: str, page: _Watched, client: str) -> None:
        with self._lock:
            page.viewers -= 1
            self._of_clients -= Counter([client])
            if not page.viewers and self._watched.get(address) is page:
                del self._watched[address]

    def _poll(self) -> None:
        while True:
            begun = time.monotonic()
            with self._lock:
                if self._closed or not self._watched:
                    self._thread = None
                    return
                pages = list(self._watched.items())
            for address, page in pages:
                self._refresh(address, page)
            time.sleep(max(self._poll_s - (time.monotonic() - begun), self._poll_s / 5))

    def _refresh(self, address: str, page: _Watched) -> None:
        regions, trouble = {}, ""
        try:
            regions = dict(self._render(address))
        except NoSuchPage:
            if page.version == 0 and not page.viewers:
                raise
            trouble = "the database no longer holds this"
        except self._shown_errors as error:
            trouble = str(error)
        except Exception:  # no error of one page may stop the others
            LOG.exception("cannot render the live page %s", address)
            trouble = "this page cannot be updated; see the dashboard's log"
        with self._lock:
            if page.update(regions, trouble):
                page.changed.notify_all()
