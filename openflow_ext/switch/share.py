"""How many flows share a port, as the data plane counts them (weir_share.h). Pure."""

from __future__ import annotations

from typing import Any

NS_PER_S = 1_000_000_000
LEAST_TURN_SHIFT = 24
"""17 ms: some ticks of the programs' clock, which are 4 to 10 ms."""


def turn_shift(capacity_bps: int, buffer_bytes: int, bdp_bytes: int) -> int:
    """The exponent of a turn's length in ns: queue and link are sent in less, with a quarter to spare.

    0, which means that all flows of N_i share, where the capacity or the queue is not known.
    """
    if not capacity_bps or not buffer_bytes:
        return 0
    drained_ns = 8 * (buffer_bytes + bdp_bytes) * NS_PER_S // capacity_bps
    return max(LEAST_TURN_SHIFT, (drained_ns * 5 // 4).bit_length())


def sharers(port: Any, state: Any, now_ns: int) -> int:
    """The flows that sent in this turn or the last one, at most N_i. `now_ns`: CLOCK_MONOTONIC."""
    if not port.turn_shift:
        return int(state.n_i)
    age = (now_ns - state.turn_ns) >> port.turn_shift
    this, before = state.sharing[state.turn % 2], state.sharing[(state.turn + 1) % 2]
    flows = max(this if age < 2 else 0, before if age < 1 else 0)
    return min(int(flows), int(state.n_i))
