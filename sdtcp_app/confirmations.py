"""How switches confirm the entries of clamps: with an error for each refused one, or with a barrier. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

DONE = "done"
LOST = "none: the switch went"


class Entry(NamedTuple):
    """An entry of a flow's clamp. ``decision_id`` None: it puts an earlier decision into force again."""

    flow_id: int
    decision_id: int | None


class Confirmations:
    """The entries that their switch has not confirmed, by the xid of their FLOW_MOD.

    At most one barrier is under way to a switch. It confirms the entries that were sent earlier.
    """

    def __init__(self) -> None:
        self._sent: dict[int, dict[int, Entry]] = {}
        self._asked: dict[int, tuple[int, dict[int, Entry]]] = {}

    def sent(self, dpid: int, xid: int, entry: Entry) -> None:
        """The FLOW_MOD of an entry was sent."""
        self._sent.setdefault(dpid, {})[xid] = entry

    def to_ask(self) -> Iterator[int]:
        """The switches to which a barrier should be sent."""
        return (dpid for dpid in list(self._sent) if dpid not in self._asked)

    def asked(self, dpid: int, xid: int) -> None:
        """A barrier was sent."""
        self._asked[dpid] = xid, self._sent.pop(dpid)

    def on_error(self, dpid: int, xid: int) -> Entry | None:
        """The entry that a switch refused; None if the message was another."""
        waiting = [self._sent.get(dpid, {}), *([self._asked[dpid][1]] if dpid in self._asked else [])]
        return next((some.pop(xid) for some in waiting if xid in some), None)

    def on_barrier(self, dpid: int, xid: int) -> list[Entry]:
        """The entries that are in force."""
        if dpid not in self._asked or self._asked[dpid][0] != xid:
            return []
        return list(self._asked.pop(dpid)[1].values())

    def switch_gone(self, dpid: int) -> list[Entry]:
        """The entries that a disconnected switch will not confirm."""
        _, asked = self._asked.pop(dpid, (0, {}))
        return [*asked.values(), *self._sent.pop(dpid, {}).values()]
