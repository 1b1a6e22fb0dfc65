"""Which flows leave switch S by port P, oldest first: in memory, without SQL."""

from __future__ import annotations

from sortedcontainers import SortedDict

from flowdb._native import native_threading
from flowdb.flow import Flow, PortKey

AgeKey = tuple[int, int]


class FlowIndex:
    """The live flows of every port, ordered by age; safe to share between threads.

    A flow is free or held (a controller has it in hand, say under a clamp). Every call is O(log n) in the
    flows of one port and independent of all other ports.
    """

    def __init__(self) -> None:
        self._lock = native_threading().Lock()
        self._flows: dict[int, Flow] = {}
        self._free: dict[PortKey, SortedDict[AgeKey, Flow]] = {}
        self._held: dict[PortKey, set[int]] = {}

    def __len__(self) -> int:
        return len(self._flows)

    def add(self, flow: Flow) -> None:
        """Add a flow, free. One with the same id is replaced."""
        with self._lock:
            self._drop(flow.id)
            self._flows[flow.id] = flow
            self._set_free(flow)

    def remove(self, flow_id: int) -> Flow | None:
        """Forget a flow, free or held; returns it, or None where there is none."""
        with self._lock:
            return self._drop(flow_id)

    def get(self, flow_id: int) -> Flow | None:
        return self._flows.get(flow_id)

    def flows(self) -> list[Flow]:
        """All flows, in no order."""
        with self._lock:
            return list(self._flows.values())

    def count(self, port: PortKey) -> int:
        """The flows that leave by a port, free and held."""
        with self._lock:
            return len(self._free.get(port, ())) + len(self._held.get(port, ()))

    def count_free(self, port: PortKey) -> int:
        """The free flows that leave by a port."""
        with self._lock:
            return len(self._free.get(port, ()))

    def oldest(self, port: PortKey) -> Flow | None:
        """The longest-lived free flow that leaves by a port."""
        with self._lock:
            free = self._free.get(port)
            return free.peekitem(0)[1] if free else None

    def newest(self, port: PortKey) -> Flow | None:
        """The youngest free flow that leaves by a port."""
        with self._lock:
            free = self._free.get(port)
            return free.peekitem(-1)[1] if free else None

    def any_free_between(self, port: PortKey, after: AgeKey, until: AgeKey) -> bool:
        """Whether a free flow of a port is younger than ``after`` and no younger than ``until``."""
        with self._lock:
            free = self._free.get(port)
            if not free:
                return False
            return next(free.irange(after, until, inclusive=(False, True)), None) is not None

    def hold(self, flow_id: int) -> None:
        """Take a flow out of the free ones. A flow that is gone or held already stays so."""
        with self._lock:
            flow = self._flows.get(flow_id)
            if flow is not None and flow_id not in self._held.get(flow.port, ()):
                self._unset_free(flow)
                self._held.setdefault(flow.port, set()).add(flow_id)

    def release(self, flow_id: int) -> None:
        """Put a held flow back among the free ones, at its age. A flow that is gone stays so."""
        with self._lock:
            flow = self._flows.get(flow_id)
            if flow is not None and flow_id in self._held.get(flow.port, ()):
                self._unset_held(flow)
                self._set_free(flow)

    def _drop(self, flow_id: int) -> Flow | None:
        flow = self._flows.pop(flow_id, None)
        if flow is None:
            return None
        if flow_id in self._held.get(flow.port, ()):
            self._unset_held(flow)
        else:
            self._unset_free(flow)
        return flow

    def _set_free(self, flow: Flow) -> None:
        self._free.setdefault(flow.port, SortedDict())[flow.age_key] = flow

    def _unset_free(self, flow: Flow) -> None:
        free = self._free[flow.port]
        del free[flow.age_key]
        if not free:
            del self._free[flow.port]

    def _unset_held(self, flow: Flow) -> None:
        held = self._held[flow.port]
        held.discard(flow.id)
        if not held:
            del self._held[flow.port]
