"""The model of Adaptive Pacing: equations (1) to (16) of Zou and others; model_figures.py draws two figures.

| symbol | argument | unit |
|---|---|---|
| n | ``flows`` | flows that begin together |
| w | ``window`` | packets |
| B | ``buffer`` | packets |
| C | ``rate`` | packets per second |
| t, RTT, RTO_min, t_d, t_0 | ``interval_s``, ``rtt_s``, ``rto_s``, ``packet_s``, ``spread_s`` | s |
| k | ``k``, packets of a flow in a time slot: equation (9) | 1 |

A loss rate below 0 counts as 0: the buffer holds all packets. Equation (13) is (12) with the average window.
Equation (14) has n k where (10) has n; the two agree for k = 1. weir_ap.h has equation (16) in integers.
"""

from __future__ import annotations


def timeout_probability(flows: float, window: float, buffer: float, rate: float, interval_s: float) -> float:
    """Equation (3): a flow loses its whole window. An interval of 0 gives equation (1)."""
    held = interval_s * (window - 1) * rate + buffer
    return float(max(0.0, 1 - held / (flows * window)) ** window)


def incast_probability(flows: float, window: float, buffer: float, rate: float, interval_s: float) -> float:
    """Equation (4): any flow has a timeout. An interval of 0 gives equation (2)."""
    return float(1 - (1 - timeout_probability(flows, window, buffer, rate, interval_s)) ** flows)


def completion_time_s(
    probability: float, rtt_s: float, rto_s: float, window: float, interval_s: float
) -> float:
    """Equation (6): the time of a window, of incast probability P'. An interval of 0 gives equation (5)."""
    return (1 - probability) * rtt_s + probability * rto_s + (window - 1) * interval_s


def concurrent_flows(flows: float, packet_s: float, spread_s: float) -> float:
    """Equation (7): the flows that begin in one time slot, of all that begin within ``spread_s``."""
    return flows * packet_s / spread_s


def packets_per_slot_of_flow(packet_s: float, interval_s: float) -> float:
    """Equation (8)."""
    return packet_s / interval_s


def packets_per_slot(flows: float, window: float, packet_s: float, spread_s: float) -> float:
    """Equation (9): n k, the packets of all flows in one time slot."""
    return concurrent_flows(flows, packet_s, spread_s) * window


def incast_probability_of_next_window(
    flows: float, window: float, buffer: float, rate: float, interval_s: float, k: float
) -> float:
    """Equation (10): the incast probability of the window w + 1."""
    loss = max(0.0, 1 - (interval_s * window * rate + buffer) / (flows * (window + 1)))
    return float(1 - (1 - loss ** (window + 1)) ** (flows * k))


def throughput(flows: float, window: float, buffer: float, rate: float, interval_s: float, k: float) -> float:
    """Equation (11): the normalized throughput."""
    if flows * k + window * (flows * k - rate * interval_s) <= buffer:
        return 1
    return 1 - incast_probability_of_next_window(flows, window, buffer, rate, interval_s, k)


def goodput(
    flows: float, window: float, buffer: float, rate: float, interval_s: float, k: float, rtt_s: float
) -> float:
    """Equations (12) and (13): the normalized goodput, which counts the time that pacing adds."""
    share = rtt_s / (rtt_s + window * interval_s)
    return throughput(flows, window, buffer, rate, interval_s, k) * share


def goodput_slope(
    flows: float, window: float, buffer: float, rate: float, interval_s: float, k: float, rtt_s: float
) -> float:
    """Equation (14): the derivative of the goodput by the interval, per second, while packets are lost."""
    loss = 1 - (window * interval_s * rate + buffer) / (flows * k * (window + 1))
    kept, paced_s = 1 - loss ** (window + 1), rtt_s + window * interval_s
    gain = rate * rtt_s * loss**window / kept - rtt_s / paced_s
    return float(window * kept ** (flows * k) / paced_s * gain)


def interval_s(flows: float, window: float, buffer: float, rate: float, k: float, rtt_s: float) -> float:
    """Equation (16), which is (15) between 0 and RTT / w.

    With w = 1, which (15) does not cover, it is the RTT if n k packets exceed the buffer, otherwise 0.
    """
    excess = flows * k * window - buffer
    if window <= 1:
        return rtt_s if excess > 0 else 0
    return max(0, min(rtt_s / window, excess / (rate * (window - 1))))
