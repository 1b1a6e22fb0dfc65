"""The active senders of a port, counted in turns as the data plane does it (weir_share.h). Pure."""

from __future__ import annotations

from typing import Any

from openflow_ext.switch.dataplane.structs import constants
from weir_base.window import active_senders, drain_ns, fair_share_bytes

SHORTEST_TURN_SHIFT = 24
"""2^24 ns, 17 ms: several ticks of the clock by which the programs count turns (4 to 10 ms each)."""


def turn_shift(capacity_bps: int, buffer_bytes: int, bdp_bytes: int) -> int:
    """The exponent of a turn's length in ns, long enough for a full queue and the link to drain.

    A turn has at least a quarter of that time to spare. 0 if the capacity or the queue is not known: then all
    flows of N_i share the port.
    """
    if not capacity_bps or not buffer_bytes:
        return 0
    drained_ns = drain_ns(buffer_bytes + bdp_bytes, capacity_bps)
    return max(SHORTEST_TURN_SHIFT, (drained_ns * 5 // 4).bit_length())


def port_active_senders(port: Any, state: Any, now_ns: int) -> int:
    """The flows that share a port at `now_ns` (CLOCK_MONOTONIC); all of N_i if the port counts no turns."""
    if not port.turn_shift:
        return int(state.n_i)
    passed = turns_passed(port, state, now_ns)
    return active_senders(state.sent_in_turn, state.turn, passed, int(state.n_i))


def port_fair_share_bytes(port: Any, state: Any, now_ns: int) -> int:
    """The part of the allowance that an active sender of full weight has, at `now_ns`.

    0 if the port sets no fair share: its allowance is for punished flows only.
    """
    if not port.bdp_bytes:
        return 0
    if not port.link_ns or not port.turn_shift:
        return fair_share_bytes(port_allowance_bytes(port, state), port_active_senders(port, state, now_ns))
    full = int(constants.WEIR_FULL_WEIGHT)
    passed = turns_passed(port, state, now_ns)
    weight = active_senders(state.weight_in_turn, state.turn, passed, full * int(state.n_i))
    return fair_share_bytes(full * port_allowance_bytes(port, state), weight or full)


def turns_passed(port: Any, state: Any, now_ns: int) -> int:
    """The whole turns since the current turn of a port began, if it counts turns."""
    shift = (port.link_ns and state.turn_shift) or port.turn_shift
    return int((now_ns - state.turn_start_ns) >> shift)


def port_allowance_bytes(port: Any, state: Any) -> int:
    """The bytes that may be in flight towards a port: its BDP, or what it has corrected that to.

    0: the port sets no fair share, and has corrected nothing for punished flows yet.
    """
    return int((port.link_ns and state.allowance_bytes) or port.bdp_bytes)
