"""The effect of a flow report on a flow, and the hops of its path."""

from dataclasses import replace

from flowdb.flow import FiveTuple, Flow, FlowState, Hop

S = 1_000_000_000
FLOW = Flow(1, FiveTuple("10.0.0.1", "10.0.0.2", 1000, 80), (Hop(1, 1, 2), Hop(2, 3, 4)), 10 * S, 1460, 9)


def test_the_rate_covers_the_time_since_the_last_report():
    first = FLOW.with_report(1_000_000, 12 * S, FlowState.ACTIVE)
    assert (first.sent_bytes, first.rate_bps, first.last_active_ns) == (1_000_000, 4_000_000, 12 * S)
    second = first.with_report(1_500_000, 13 * S, FlowState.IDLE)
    assert (second.rate_bps, second.state) == (4_000_000, FlowState.IDLE)


def test_a_contradicting_report_changes_only_the_state():
    """Another switch counted fewer bytes, or a switch's clock was set back."""
    known = FLOW.with_report(1_000_000, 12 * S, FlowState.ACTIVE)
    for sent_bytes, at_ns in ((900_000, 13 * S), (2_000_000, 11 * S), (2_000_000, 12 * S)):
        assert known.with_report(sent_bytes, at_ns, FlowState.IDLE) == replace(known, state=FlowState.IDLE)


def test_a_rate_is_bounded_so_that_rates_can_be_added():
    """SQLite refuses a sum above 2**63, and the dashboard's topology adds the rates of a port."""
    fast = FLOW.with_report(2**62, 10 * S + 1, FlowState.ACTIVE)
    assert (fast.sent_bytes, fast.rate_bps) == (2**62, 10**12)


def test_hop_at_finds_the_hop_of_a_switch():
    assert FLOW.hop_at(2) == Hop(2, 3, 4)
    assert FLOW.hop_at(3) is None
