"""Notes of many switches in bounded memory, where no switch can displace the notes of another. Pure."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class BoundedNotes(Generic[_Key, _Value]):
    """At most ``most`` notes, each of a switch. A new note then displaces the oldest one of some switch.

    That is the note's own switch if it has an equal share of the notes or more, and otherwise the switch that
    has most. So a switch with fewer notes than an equal share loses none. ``displaced`` counts lost notes.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.displaced = 0
        self._notes: dict[_Key, tuple[int, _Value]] = {}
        self._keys_of: dict[int, OrderedDict[_Key, None]] = {}  # by datapath id, oldest first

    def __len__(self) -> int:
        return len(self._notes)

    def get(self, key: _Key) -> _Value | None:
        """The note of a key."""
        note = self._notes.get(key)
        return note[1] if note else None

    def put(self, key: _Key, value: _Value, dpid: int) -> None:
        """Note the value of a key for the switch ``dpid``, in place of an earlier note of the key."""
        self.pop(key)
        if len(self._notes) >= self.most:
            self._displace_one(dpid)
        self._notes[key] = dpid, value
        self._keys_of.setdefault(dpid, OrderedDict())[key] = None

    def pop(self, key: _Key) -> _Value | None:
        """Remove the note of a key, and return it."""
        note = self._notes.pop(key, None)
        if note is None:
            return None
        dpid, value = note
        del self._keys_of[dpid][key]
        if not self._keys_of[dpid]:
            del self._keys_of[dpid]
        return value

    def _displace_one(self, dpid: int) -> None:
        own = len(self._keys_of.get(dpid, ()))
        if own * len(self._keys_of) < len(self._notes):
            dpid = max(self._keys_of, key=lambda one: len(self._keys_of[one]))
        self.pop(next(iter(self._keys_of[dpid])))
        self.displaced += 1
