"""The standing of flows that reconnect: the age and the volume of their earlier connections. Pure.

Without it, a program that opens a new connection whenever it is about to be slowed down never is: its flow is
always the youngest. A flow leaves its standing behind when it ends, if it was punished or had sent
``BULK_BYTES``. A flow of the same two hosts and the same port takes it over if it opens within ``keep_s``, or
has opened in the last ``keep_s``. Only one flow does, so short flows between the same hosts stay young.

The port is the one of either end that did not change, because a flow does not show which end is the server.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any

from flowdb.flow import NS_PER_S, Flow
from flowdb.index import Rank

BULK_BYTES = 1_000_000
MOST = 65_536
"""The number of flows that are remembered of each kind; the oldest are forgotten first."""

_Key = tuple[str, str, str, int]


@dataclass(frozen=True, slots=True)
class Standing:
    """The earlier connections of a flow: when the first one opened, and what they sent."""

    opened_ns: int
    sent_bytes: int


@dataclass(frozen=True, slots=True)
class _Left:
    """The standing of a flow that ended, under both of its ``keys``."""

    standing: Standing
    ended_ns: int
    keys: tuple[_Key, _Key]


class Standings:
    """The standings of open flows, and of flows that ended lately. Times are Unix nanoseconds."""

    def __init__(self, keep_s: float) -> None:
        self.keep_s = keep_s
        self._of_flow: dict[int, Standing] = {}
        self._left: OrderedDict[_Key, _Left] = OrderedDict()
        self._newest: OrderedDict[_Key, Flow] = OrderedDict()

    @property
    def remembered(self) -> int:
        """The number of names of flows in memory, beside the flows that have a standing."""
        return len(self._left) + len(self._newest)

    def opened(self, flow: Flow) -> bool:
        """A flow opened. Returns whether it takes over a standing."""
        for key in _keys(flow):
            self._newest[key] = flow
            self._newest.move_to_end(key)
        _trim(self._newest)
        found = next((key for key in _keys(flow) if self._is_kept(key, flow.opened_ns)), None)
        if found is None:
            return False
        self._of_flow[flow.id] = self._take(found)
        return True

    def closed(self, flow: Flow, punished: bool, now_ns: int) -> int | None:
        """A flow ended. Returns the id of the open flow that takes over its standing, if there is one."""
        counted = self.counted(flow)
        self._of_flow.pop(flow.id, None)
        keys = _keys(flow)
        for key in keys:
            if key in self._newest and self._newest[key].id == flow.id:
                del self._newest[key]
        if not self.keep_s or not (punished or flow.sent_bytes >= BULK_BYTES):
            return None
        standing = Standing(counted.opened_ns, counted.sent_bytes)
        since_ns = max(flow.opened_ns, round(now_ns - self.keep_s * NS_PER_S))
        for key in keys:
            heir = self._newest.get(key)
            if heir is not None and heir.id not in self._of_flow and heir.opened_ns >= since_ns:
                self._of_flow[heir.id] = standing
                return heir.id
        left = _Left(standing, now_ns, keys)
        for key in keys:
            self._left[key] = left
            self._left.move_to_end(key)
        _trim(self._left)
        return None

    def counted(self, flow: Flow) -> Flow:
        """The flow as policies see it: with the age and the volume of its earlier connections."""
        standing = self._of_flow.get(flow.id)
        if standing is None:
            return flow
        return replace(flow, opened_ns=standing.opened_ns, sent_bytes=flow.sent_bytes + standing.sent_bytes)

    def ranked(self, rank: Rank) -> Rank:
        """``rank`` with the standings of flows."""

        def rank_counted(flow: Flow) -> tuple[Any, ...] | None:
            return rank(self.counted(flow))

        return rank_counted

    def _is_kept(self, key: _Key, opened_ns: int) -> bool:
        left = self._left.get(key)
        return left is not None and opened_ns - left.ended_ns <= self.keep_s * NS_PER_S

    def _take(self, key: _Key) -> Standing:
        """Take a standing that was left behind. Only one flow gets it."""
        left = self._left[key]
        for name in left.keys:
            if self._left.get(name) is left:
                del self._left[name]
        return left.standing


def _keys(flow: Flow) -> tuple[_Key, _Key]:
    """The two names under which a flow is remembered: by the port of each end."""
    key = flow.key
    return (key.src, key.dst, "dst", key.dst_port), (key.src, key.dst, "src", key.src_port)


def _trim(kept: OrderedDict[_Key, Any]) -> None:
    while len(kept) > MOST:
        kept.popitem(last=False)
