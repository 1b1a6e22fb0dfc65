"""What the switches say to the entries that are pushed: an error each, or one barrier for all. Pure."""

from __future__ import annotations

from collections.abc import Iterator

DONE = "done"
LOST = "none: the switch went"


class Answers:
    """Decisions that wait for their switch's word, by the xid of their FLOW_MOD.

    One barrier at a time is under way to a switch. It answers for what was pushed before it was asked.
    """

    def __init__(self) -> None:
        self._pushed: dict[int, dict[int, int]] = {}
        self._asked: dict[int, tuple[int, dict[int, int]]] = {}

    def pushed(self, dpid: int, xid: int, decision_id: int) -> None:
        self._pushed.setdefault(dpid, {})[xid] = decision_id

    def to_ask(self) -> Iterator[int]:
        """The switches that a barrier is to be sent to."""
        return (dpid for dpid in list(self._pushed) if dpid not in self._asked)

    def asked(self, dpid: int, xid: int) -> None:
        """A barrier was sent."""
        self._asked[dpid] = xid, self._pushed.pop(dpid)

    def on_error(self, dpid: int, xid: int) -> int | None:
        """The decision whose entry a switch refused; None for a message of somebody else."""
        waiting = [self._pushed.get(dpid, {}), *([self._asked[dpid][1]] if dpid in self._asked else [])]
        return next((some.pop(xid) for some in waiting if xid in some), None)

    def on_barrier(self, dpid: int, xid: int) -> list[int]:
        """The decisions whose entries are in force."""
        if dpid not in self._asked or self._asked[dpid][0] != xid:
            return []
        return list(self._asked.pop(dpid)[1].values())

    def gone(self, dpid: int) -> list[int]:
        """The decisions that a switch no longer answers."""
        _, asked = self._asked.pop(dpid, (0, {}))
        return [*asked.values(), *self._pushed.pop(dpid, {}).values()]
