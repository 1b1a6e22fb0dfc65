"""The sessions of people. The server remembers each, so a copied cookie is worthless after the logout.

They are in memory: a restart of the dashboard ends all of them.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock

MOST_OF_PERSON = 50
"""A further login ends the person's oldest session."""


@dataclass(frozen=True, slots=True)
class _Session:
    name: str
    mark: str
    ends_s: float


class Sessions:
    """Open sessions by their id. Times are monotonic, in seconds."""

    def __init__(self, lasts_s: float) -> None:
        self._lasts_s = lasts_s
        self._open: OrderedDict[str, _Session] = OrderedDict()
        self._lock = Lock()

    def begin(self, name: str, mark: str, now_s: float) -> str:
        """Open a session; returns its id. ``mark``: ``Accounts.session_mark`` of the person."""
        session_id = secrets.token_urlsafe(24)
        with self._lock:
            over = [known for known, one in self._open.items() if one.ends_s <= now_s]
            for known in over:
                del self._open[known]
            of_person = [known for known, one in self._open.items() if one.name == name]
            if len(of_person) >= MOST_OF_PERSON:
                del self._open[of_person[0]]
            self._open[session_id] = _Session(name, mark, now_s + self._lasts_s)
        return session_id

    def person(self, session_id: str | None, now_s: float) -> tuple[str, str] | None:
        """The name and the mark of an open session; None: it has ended, or there never was one."""
        if session_id is None:
            return None
        with self._lock:
            found = self._open.get(session_id)
        return None if found is None or found.ends_s <= now_s else (found.name, found.mark)

    def end(self, session_id: str | None) -> None:
        """End a session, if it is open."""
        with self._lock:
            self._open.pop(session_id or "", None)
