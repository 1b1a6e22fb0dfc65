"""What a field meant in earlier versions: pure functions from an old record to a new one.

A field that keeps its name is copied, and a new field begins at 0. Only a field that was removed, renamed
or given another meaning needs a step here. If none handles it, the upgrade is refused, because it would lose
state. WEIR_MEANING counts the steps:

1  up to version 541b249: every believable or unbelievable segment changed a flow
2  flows follow the sequence numbers of both hosts (docs/decisions/0059-only-what-endpoints-believe.md)
3  the window limits a flow if timestamps show it (docs/decisions/0068-flows-that-the-window-limits.md)
4  weights are 4,096 times as large (docs/decisions/0080-shares-by-host.md)
5  a watched flow has half of a timestamp and a time (docs/decisions/0086-shortest-round-trip.md)
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from openflow_ext.switch.dataplane.structs import constants as c

Record = dict[str, Any]
"""A record by the paths of its fields: integers of up to 8 bytes, other fields as bytes."""

Step = Callable[[Record], Record]
"""A record of one meaning -> the same record in the next meaning."""

_U32 = 0xFFFFFFFF
_MS_SHIFT = 20
"""As MS_SHIFT in weir_consts.h."""
_IN_TURN = struct.Struct("=2Q")
"""A count of the last even and of the last odd turn."""
_FULL_WEIGHT, _FULL_WEIGHT_BEFORE_4 = int(c.WEIR_FULL_WEIGHT), 16


def flow_1_to_2(flow: Record) -> Record:
    """A flow that has the sequence numbers of its handshake and the last acknowledgement of the local host.

    What both hosts have sent since is unknown, so that the flow learns it from their next segments
    (WEIR_LEARNS_IN, WEIR_LEARNS_OUT). Its key was in flow_keys from the first SYN on.
    """
    new = dict(flow)
    counted, two, acked = (new.pop(name) for name in ("counted", "two_segments", "last_ack_seq"))
    new["member"] = (c.WEIR_IN_N_I if counted else 0) | (c.WEIR_IN_TWO_SEGMENTS if two else 0)
    new["reported_ms"] = new.pop("reported_ns") >> _MS_SHIFT & _U32
    del new["swept_ns"]
    opened = c.WEIR_SYN_IN | c.WEIR_SYN_OUT
    if flow["flags"] & opened == opened:
        new["flags"] |= c.WEIR_ANSWER_IN | c.WEIR_ANSWER_OUT
    if flow["flags"] & c.WEIR_WAS_COUNTED:
        new["flags"] |= c.WEIR_TO_COUNT
    if flow["flags"] & c.WEIR_ESTABLISHED:
        new["flags"] |= c.WEIR_KEPT | c.WEIR_LEARNS_IN | c.WEIR_LEARNS_OUT
    remote_next = acked or flow["remote_isn"] + 1
    new["local_edges.end"] = new["remote_edges.ack"] = flow["local_isn"] + 1 & _U32
    new["remote_edges.end"] = new["local_edges.ack"] = remote_next & _U32
    return new


def flow_2_to_3(flow: Record) -> Record:
    """A flow without the measurement of pauses, whose result had only served the current round."""
    return {path: value for path, value in flow.items() if path not in ("window_bytes", "out_before_gap")}


def state_2_to_3(state: Record) -> Record:
    """A port without the measurement of pauses. No flow is known to be limited by its window."""
    kept = {path: value for path, value in state.items() if path not in ("longest_gap_ns", "round_gap_ns")}
    return kept | {"window_limits": 0}


def state_3_to_4(state: Record) -> Record:
    """A port whose weights have a finer unit. The sum if nobody were punished follows from the senders."""
    nothing = bytes(_IN_TURN.size)
    weights = _IN_TURN.unpack(state.get("weight_in_turn", nothing))
    senders = _IN_TURN.unpack(state.get("sent_in_turn", nothing))
    new = dict(state)
    new["weight_in_turn"] = _IN_TURN.pack(*(_FULL_WEIGHT // _FULL_WEIGHT_BEFORE_4 * one for one in weights))
    new["full_in_turn"] = _IN_TURN.pack(*(_FULL_WEIGHT * one for one in senders))
    return new


def flow_4_to_5(flow: Record) -> Record:
    """A flow that is not watched, because the time of the ACK is not known. Its next lowered window is."""
    kept = {path: value for path, value in flow.items() if path != "watched_timestamp"}
    return kept | {"flags": flow["flags"] & ~c.WEIR_WATCHED}


STEPS: dict[int, dict[str, Step]] = {
    1: {"struct weir_flow": flow_1_to_2},
    2: {"struct weir_flow": flow_2_to_3, "struct weir_port_state": state_2_to_3},
    3: {"struct weir_port_state": state_3_to_4},
    4: {"struct weir_flow": flow_4_to_5},
}
"""The steps from a meaning to the next one, by the C type of the record. A type without a step is copied."""


def steps(c_type: str, meaning: int, to: int) -> tuple[Step, ...]:
    """The steps of a C type from one meaning to another one, in order."""
    found = (STEPS.get(number, {}).get(c_type) for number in range(meaning, to))
    return tuple(step for step in found if step is not None)
