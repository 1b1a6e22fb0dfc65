"""Queueing disciplines by netlink: their drops, and the removal of an empty clsact qdisc."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

_ROOT = 0xFFFFFFFF
_CLSACT = 0xFFFFFFF1
_CLSACT_INGRESS = 0xFFFFFFF2
_CLSACT_EGRESS = 0xFFFFFFF3
_VALID_S = 0.1


class Qdiscs:
    """A netlink socket on a thread of its own, because pyroute2 cannot run inside a running event loop."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="netlink")
        self._route: IPRoute = self._thread.submit(IPRoute).result()
        self._drops: dict[int, int] = {}
        self._read_at = float("-inf")

    def close(self) -> None:
        self._thread.submit(self._route.close).result()
        self._thread.shutdown()

    def drops(self, ifindex: int) -> int:
        """The packets that an interface's root qdisc has dropped since it was created; 0 without a qdisc.

        One reading is used for all interfaces for a tenth of a second.
        """
        if time.monotonic() - self._read_at > _VALID_S:
            self._drops = self._thread.submit(self._read_drops).result()
            self._read_at = time.monotonic()
        return self._drops.get(ifindex, 0)

    def remove_empty_clsact(self, ifindex: int) -> None:
        """Remove an interface's clsact qdisc if no filter is attached to it. The interface may be gone."""
        self._thread.submit(self._remove_empty_clsact, ifindex).result()

    def _read_drops(self) -> dict[int, int]:
        return {q["index"]: _queue_drops(q) for q in self._route.get_qdiscs() if q["parent"] == _ROOT}

    def _remove_empty_clsact(self, ifindex: int) -> None:
        try:
            if not any(q["parent"] == _CLSACT for q in self._route.get_qdiscs(index=ifindex)):
                return
            hooks = (_CLSACT_INGRESS, _CLSACT_EGRESS)
            if not any(tuple(self._route.get_filters(index=ifindex, parent=hook)) for hook in hooks):
                self._route.tc("del", "clsact", ifindex)
        except NetlinkError:
            return


def _queue_drops(qdisc: Any) -> int:
    stats = qdisc.get_attr("TCA_STATS2")
    queue = stats.get_attr("TCA_STATS_QUEUE") if stats else None
    return int(queue["drops"]) if queue else 0
