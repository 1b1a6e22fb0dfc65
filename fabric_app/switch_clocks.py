"""The difference between a switch's clock and the controller's. Pure; time in nanoseconds.

Both clocks are Unix time as it was when agent or controller started. They differ by what somebody set the
system's clock between the two starts, or by the error of one machine's clock. A flow report states the
switch's time at which it was sent. A report takes time to arrive, so the first report of a session gives a
difference that is a little too large. It is kept, because two differences could change the order of a flow's
times. Only a difference that is smaller by ``SYNCHRONOUS_NS`` replaces it: the first report was late. A
difference below ``SYNCHRONOUS_NS`` counts as none. So times are wrong by at most ``SYNCHRONOUS_NS`` and the
time for which the first report was under way.
"""

from __future__ import annotations

from collections.abc import Sequence

from openflow_ext.wire import FlowRecord

SYNCHRONOUS_NS = 500_000_000


class SwitchClocks:
    """The clocks of the connected switches."""

    def __init__(self) -> None:
        self._shifts_ns: dict[int, int] = {}

    def forget(self, dpid: int) -> None:
        """A session begins or ends: a new agent may have another clock."""
        self._shifts_ns.pop(dpid, None)

    def note(self, dpid: int, switch_now_ns: int, now_ns: int) -> None:
        """A report that a switch sent at its ``switch_now_ns`` arrived at the controller's ``now_ns``."""
        shift_ns = now_ns - switch_now_ns
        held_ns = self._shifts_ns.get(dpid)
        if held_ns is None or shift_ns <= held_ns - SYNCHRONOUS_NS:
            self._shifts_ns[dpid] = shift_ns

    def in_our_time(self, dpid: int, records: Sequence[FlowRecord]) -> Sequence[FlowRecord]:
        """A switch's records with times of the controller's clock. An old switch's stay as they are."""
        shift_ns = self._shifts_ns.get(dpid, 0)
        if abs(shift_ns) < SYNCHRONOUS_NS:
            return records
        return [
            record._replace(
                first_ns=max(record.first_ns + shift_ns, 0), last_ns=max(record.last_ns + shift_ns, 0)
            )
            for record in records
        ]
