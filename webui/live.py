"""Live pages: one poller asks the database, however many look, and tells each what changed.

A viewer watches a page by its address. While anybody does, the poller makes the page's regions anew, once
for all who watch that page, and a viewer gets those that differ from what it has. A viewer who comes, or
comes back, has nothing: it gets them all, so a tab that was asleep needs no history.

NoSuchPage       the address is not of a live page
TooManyViewers   no more can be served
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from threading import Condition, Lock, Thread

KEEP_ALIVE_S = 15.0
LONGEST_S = 600.0
"""A stream ends after this, and the browser comes again: so who has lost the right to look stops."""
LOG = logging.getLogger(__name__)

Regions = Mapping[str, str]


class NoSuchPage(LookupError):
    """The address is not of a live page."""


class TooManyViewers(RuntimeError):
    """No more viewers can be served."""


@dataclass
class _Watched:
    """A page that is watched: each region with the version in which it last changed.

    ``told``: the event for those who have seen a version, made once however many they are.
    """

    changed: Condition
    viewers: int = 0
    version: int = 0
    regions: dict[str, tuple[int, str]] = field(default_factory=dict)
    trouble: str = ""
    told: dict[int, str] = field(default_factory=dict)

    def take(self, regions: Regions, trouble: str) -> bool:
        """The page as it is now; whether anything differs."""
        changed = {name for name, html in regions.items() if self.regions.get(name, (0, None))[1] != html}
        if not changed and trouble == self.trouble and self.version:
            return False
        self.version += 1
        self.trouble = trouble
        self.told.clear()
        for name in changed:
            self.regions[name] = self.version, regions[name]
        return True

    def since(self, seen: int) -> str:
        if seen not in self.told:
            newer = {name: html for name, (version, html) in self.regions.items() if version > seen}
            news = json.dumps({"regions": newer, "trouble": self.trouble})
            self.told[seen] = f"event: change\ndata: {news}\n\n"
        return self.told[seen]


class Stream:
    """A viewer's events; ``close``, which the server calls in any case, lets the page go."""

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
    """Streams of live pages. ``render`` makes a page's regions from its address, or raises NoSuchPage;
    ``troubles`` are the errors whose message viewers shall see.
    """

    def __init__(
        self,
        render: Callable[[str], Regions],
        troubles: tuple[type[Exception], ...],
        poll_s: float = 0.5,
        most_viewers: int = 100,
    ) -> None:
        self._render = render
        self._troubles = troubles
        self._poll_s = poll_s
        self._most_viewers = most_viewers
        self._watched: dict[str, _Watched] = {}
        self._lock = Lock()
        self._thread: Thread | None = None
        self._closed = False

    @property
    def viewers(self) -> int:
        with self._lock:
            return sum(page.viewers for page in self._watched.values())

    def watch(self, address: str) -> Stream:
        """The events of a page. Raises NoSuchPage and TooManyViewers at once."""
        with self._lock:
            page = self._watched.get(address)
        if page is None:
            page = _Watched(Condition(self._lock))
            self._refresh(address, page)
        with self._lock:
            if sum(page.viewers for page in self._watched.values()) >= self._most_viewers:
                raise TooManyViewers(
                    f"{self._most_viewers} live pages are open, which is all that are served"
                )
            page = self._watched.setdefault(address, page)
            page.viewers += 1
            if self._thread is None:
                self._thread = Thread(target=self._poll, name="live-poller", daemon=True)
                self._thread.start()
        return Stream(self._events(page), lambda: self._leave(address, page))

    def close(self) -> None:
        """End every stream, for the server stops."""
        with self._lock:
            self._closed = True
            for page in self._watched.values():
                page.changed.notify_all()

    def _events(self, page: _Watched) -> Iterator[str]:
        seen, ends = 0, time.monotonic() + LONGEST_S
        yield "retry: 1000\n\n"
        while time.monotonic() < ends:
            with self._lock:
                has_news = page.changed.wait_for(partial(self._has_news, page, seen), KEEP_ALIVE_S)
                if self._closed:
                    return
                event = page.since(seen) if has_news else ": still here\n\n"
                seen = page.version
            yield event

    def _has_news(self, page: _Watched, seen: int) -> bool:
        return self._closed or page.version > seen

    def _leave(self, address: str, page: _Watched) -> None:
        with self._lock:
            page.viewers -= 1
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
            trouble = "this is not in the database any more"
        except self._troubles as error:
            trouble = str(error)
        except Exception:  # whatever it is, the other pages live on
            LOG.exception("the live page %s cannot be made", address)
            trouble = "this page cannot be kept up to date; see the dashboard's log"
        with self._lock:
            if page.take(regions, trouble):
                page.changed.notify_all()
