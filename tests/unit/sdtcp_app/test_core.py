"""The control loop: which flow it punishes, when, and that every clamp ends."""

from dataclasses import replace

from flowdb.flow import FiveTuple, Flow, FlowState, Hop, PortKey
from flowdb.index import FlowIndex, by_age_active_first
from sdtcp_app.core import Sdtcp
from sdtcp_app.core_types import Alarm, Equation, Lift, LiftReason, Parameters, Punish

PORT = PortKey(1, 3)
MS = 1_000_000
S = 1000 * MS
STEP = 1_500_000
"""3/2 RTT at the default RTT of 1 ms."""


def make_flow(flow_id, port=PORT, wscale=9):
    key = FiveTuple("10.0.0.1", "10.0.0.2", flow_id, 80)
    return Flow(flow_id, key, (Hop(port.dpid, 9, port.port_no),), flow_id, 1460, wscale)


def alarm(port=PORT, queue_bytes=45_000, n_i=0, non_tcp_percent=0):
    return Alarm(port, queue_bytes, 100_000_000, n_i, non_tcp_percent=non_tcp_percent)


def setup(flows=3, policy=None):
    index = FlowIndex()
    for flow_id in range(1, flows + 1):
        index.add(make_flow(flow_id))
    return index, Sdtcp(index, policy or Parameters())


def close(index, core, flow_id):
    return core.on_flow_closed(index.remove(flow_id))


def raise_alarms(core, count, n_i=0):
    """Raise an alarm at time 0 and after each step."""
    for step in range(count):
        core.on_alarm(alarm(n_i=n_i), step * STEP)


def test_one_flow_an_alarm_and_the_next_after_three_halves_of_an_rtt():
    _, core = setup()
    assert [punish.flow.id for punish in core.on_alarm(alarm(), 0)] == [1]
    assert core.on_alarm(alarm(), MS) == []
    assert core.on_alarm(alarm(), STEP - 1) == []
    assert [punish.flow.id for punish in core.on_alarm(alarm(), STEP)] == [2]


def test_a_punishment_holds_every_input():
    _, core = setup(10)
    (punish,) = core.on_alarm(alarm(), 0)
    assert punish == Punish(
        flow=make_flow(1), port=PORT, switch=1, equation=Equation.PUNISHED, window_bytes=2_875, alpha=5,
        candidates=10, ranking=tuple(make_flow(n) for n in range(1, 6)), capacity_bps=100_000_000,
        rtt_us=1000, queue_bytes=45_000, n=10, wc_bytes=5_750, wr_bytes=65535 << 9,
    )  # fmt: skip


def test_an_allowance_takes_the_place_of_capacity_and_rtt():
    with_allowance = replace(alarm(n_i=4), allowance_bytes=60_000)
    (punish,) = setup(4, Parameters(corrects_allowance=True))[1].on_alarm(with_allowance, 0)
    assert (punish.allowance_bytes, punish.wc_bytes, punish.window_bytes) == (60_000, 26_250, 13_125)
    (published,) = setup(4)[1].on_alarm(with_allowance, 0)
    assert (published.allowance_bytes, published.wc_bytes) == (0, 14_375)


def test_n_is_the_switch_s_count_if_it_has_one():
    _, core = setup(10)
    (punish,) = core.on_alarm(alarm(n_i=5), 0)
    assert (punish.n, punish.wc_bytes) == (5, 11_500)


def test_a_queue_of_which_half_is_not_tcp_punishes_nobody():
    _, core = setup()
    assert core.on_alarm(alarm(non_tcp_percent=50), 0) == []
    assert [punish.flow.id for punish in core.on_alarm(alarm(non_tcp_percent=49), 1)] == [1]


def test_flows_share_once_when_the_last_is_punished():
    """Section III.D. No alarm may follow: with windows of equation (3) the queue drains."""
    index, core = setup(2)
    assert [p.equation for p in core.on_alarm(alarm(), 0)] == [Equation.PUNISHED]
    shared = core.on_alarm(alarm(), STEP)
    assert [(s.flow.id, s.equation, s.alpha, s.window_bytes) for s in shared] == [
        (1, Equation.SHARED, 0, 28_750),
        (2, Equation.SHARED, 0, 28_750),
    ]
    assert core.on_alarm(alarm(), 2 * STEP) == []
    for flow_id in (7, 8):
        index.add(make_flow(flow_id))
    assert [p.equation for p in core.on_alarm(alarm(), 3 * STEP)] == [Equation.PUNISHED]
    shared = core.on_alarm(alarm(), 4 * STEP)
    assert [(s.flow.id, s.equation) for s in shared] == [(n, Equation.SHARED) for n in (1, 2, 7, 8)]


def test_a_released_flow_gets_its_share_back_alone():
    index, core = setup(3)
    raise_alarms(core, 3, n_i=3)
    close(index, core, 3)
    assert [lift.flow.id for lift in core.on_normal(PORT, 4 * STEP)] == [1]
    again = core.on_alarm(alarm(n_i=3), 5 * STEP)
    assert [(share.flow.id, share.equation) for share in again] == [(1, Equation.SHARED)]


def test_released_flows_share_at_the_next_alarm():
    """The flow that was not punished ended, so all that are left were punished."""
    index, core = setup(4)
    raise_alarms(core, 3, n_i=4)
    close(index, core, 4)
    assert [lift.flow.id for lift in core.on_normal(PORT, 4 * STEP)] == [1]
    assert [lift.flow.id for lift in core.on_tick(5 * STEP)] == [2]
    shared = core.on_alarm(alarm(n_i=3), 6 * STEP)
    assert {(share.flow.id, share.equation) for share in shared} == {(n, Equation.SHARED) for n in (1, 2, 3)}


def test_a_new_flow_beside_released_ones_is_the_last_that_was_not_punished():
    index, core = setup(4)
    raise_alarms(core, 2)
    close(index, core, 3)
    close(index, core, 4)
    core.on_normal(PORT, 3 * STEP)
    for flow_id in (7, 8):
        index.add(make_flow(flow_id))
    assert [(p.flow.id, p.equation) for p in core.on_alarm(alarm(), 4 * STEP)] == [(1, Equation.PUNISHED)]
    assert [(p.flow.id, p.equation) for p in core.on_alarm(alarm(), 5 * STEP)] == [(7, Equation.PUNISHED)]
    assert {p.flow.id for p in core.on_alarm(alarm(), 6 * STEP)} == {1, 2, 7, 8}


def test_a_share_falls_with_each_ack_if_ports_correct_their_allowance():
    """There the last flow is punished like the others: the switch gives them what the link needs."""
    _, core = setup(1, Parameters(corrects_allowance=True))
    assert [p.equation for p in core.on_alarm(alarm(), 0)] == [Equation.PUNISHED]
    assert [(s.equation, s.alpha) for s in core.on_alarm(alarm(), STEP)] == [(Equation.SHARED, 5)]


def test_the_share_holds_the_queue_at_k():
    """Equation (5) with 100 packets waiting and K = 20: 12.5 KB in flight, 30 KB queued, for two flows."""
    _, core = setup(2)
    overrun = Alarm(PORT, 150_000, 100_000_000, 0, 100)
    core.on_alarm(overrun, 0)
    shared = core.on_alarm(overrun, STEP)
    assert [(s.window_bytes, s.queue_bytes) for s in shared] == [(21_250, 30_000)] * 2


def test_the_share_shrinks_by_whole_segments_as_flows_join():
    index, core = setup(2)
    raise_alarms(core, 2)
    index.add(make_flow(7))
    shared = core.on_alarm(alarm(), 3 * STEP)
    assert [(s.flow.id, s.window_bytes) for s in shared] == [(1, 19_166), (2, 19_166), (7, 19_166)]
    assert core.on_alarm(alarm(queue_bytes=44_000), 4 * STEP) == []


def test_a_port_without_flows_is_forgotten():
    _, core = setup(0)
    assert core.on_alarm(alarm(), 0) == []
    assert core.busy
    assert core.on_tick(STEP) == []
    assert not core.busy


def test_release_waits_for_normal_and_for_the_end_of_the_burst():
    index, core = setup(3)
    core.on_alarm(alarm(), 0)
    assert core.on_tick(10 * MS) == []
    assert core.on_normal(PORT, 20 * MS) == []
    index.add(make_flow(9))  # came after BUF_NORMAL: no burst flow
    assert close(index, core, 2) == []
    assert core.on_tick(30 * MS) == []
    close(index, core, 3)
    assert core.on_tick(40 * MS) == [Lift(make_flow(1), PORT, 1, LiftReason.NORMAL)]
    assert core.on_tick(50 * MS) == []
    assert not core.busy


def test_a_burst_flow_may_be_older_than_a_punished_flow():
    """If activity is known of the youngest flow first, that flow is punished before the others."""
    index, core = setup(3)
    for older in (1, 2):
        index.change(replace(make_flow(older), state=FlowState.IDLE))
    index.rank_by(by_age_active_first)
    assert [punish.flow.id for punish in core.on_alarm(alarm(), 0)] == [3]
    index.change(make_flow(1))
    assert [punish.flow.id for punish in core.on_alarm(alarm(), STEP)] == [1]
    index.change(make_flow(2))
    assert core.on_normal(PORT, 20 * MS) == [], "flow 2 is a burst flow"
    assert core.on_tick(30 * MS) == []
    index.change(replace(make_flow(2), state=FlowState.IDLE))
    assert [lift.flow.id for lift in core.on_tick(40 * MS)] == [3]


def test_a_flow_that_a_port_released_is_no_burst_flow():
    """Flow 2 sends on, and is younger than flow 1, which is punished again."""
    index, core = setup(4, Parameters(corrects_allowance=True))
    raise_alarms(core, 3)
    close(index, core, 4)
    assert [lift.flow.id for lift in core.on_normal(PORT, 20 * MS)] == [1]
    assert [lift.flow.id for lift in core.on_tick(30 * MS)] == [2]
    assert [punish.flow.id for punish in core.on_alarm(alarm(), 40 * MS)] == [1]
    assert [lift.flow.id for lift in core.on_normal(PORT, 50 * MS)] == [3]


def test_a_port_forgets_released_flows_that_end():
    """A port that always has a clamp is never forgotten itself."""
    index, core = setup(4, Parameters(corrects_allowance=True))
    raise_alarms(core, 3)
    close(index, core, 4)
    assert [lift.flow.id for lift in core.on_normal(PORT, 20 * MS)] == [1]
    close(index, core, 1)
    assert core.punished == 2
    assert core._ports[PORT].lifted == set()


def test_without_burst_flows_normal_releases_at_once():
    _, core = setup(1, Parameters(corrects_allowance=True))
    core.on_alarm(alarm(), 0)
    assert core.on_normal(PORT, 5 * MS) == [Lift(make_flow(1), PORT, 1, LiftReason.NORMAL)]


def test_a_standing_connection_delays_release_only_until_the_limit():
    _, core = setup(2)
    core.on_alarm(alarm(), 0)
    core.on_alarm(alarm(), MS)
    core.on_normal(PORT, 2 * MS)
    assert core.on_tick(MS + 2 * S - 1) == []
    assert core.on_tick(MS + 2 * S) == [Lift(make_flow(1), PORT, 1, LiftReason.LIMIT)]


def test_if_all_flows_are_punished_only_the_limit_releases_them():
    """Burst flows look like the others then. Released at once, they would overflow the queue again."""
    _, core = setup(2)
    raise_alarms(core, 2)
    last = STEP
    assert core.on_normal(PORT, last + MS) == []
    assert core.on_tick(last + 2 * S - 1) == []
    assert [lift.reason for lift in core.on_tick(last + 2 * S)] == [LiftReason.LIMIT]


def test_if_all_flows_are_punished_each_that_ends_releases_another():
    """The burst's FINs come: the longest-lived flow is released first, and at the limit the others."""
    index, core = setup(4)
    raise_alarms(core, 4)
    last = 3 * STEP
    close(index, core, 4)
    assert core.on_tick(last + MS) == [], "the queue is still long"
    assert core.on_normal(PORT, last + 2 * MS) == [Lift(make_flow(1), PORT, 1, LiftReason.NORMAL)]
    assert core.on_tick(last + 2 * MS + STEP) == []
    close(index, core, 3)
    assert core.on_tick(last + 2 * MS + 2 * STEP) == [Lift(make_flow(2), PORT, 1, LiftReason.NORMAL)]
    assert not core.punished


def test_a_lost_normal_delays_release_only_until_the_limit():
    _, core = setup(1)
    core.on_alarm(alarm(), 0)
    assert [lift.reason for lift in core.on_tick(2 * S)] == [LiftReason.LIMIT]


def test_clamps_are_lifted_one_by_one_and_an_alarm_stops_it():
    _, core = setup(4, Parameters(corrects_allowance=True))
    raise_alarms(core, 4)
    at = 10 * STEP
    assert [lift.flow.id for lift in core.on_normal(PORT, at)] == [1]
    assert core.on_tick(at + STEP - 1) == []
    assert [lift.flow.id for lift in core.on_tick(at + STEP)] == [2]
    assert [p.flow.id for p in core.on_alarm(alarm(), at + STEP + MS)] == [1]
    assert core.on_tick(at + 9 * STEP) == []
    assert core.punished == 3


def test_a_punished_flow_that_closes_loses_its_clamp_at_once():
    index, core = setup(2)
    core.on_alarm(alarm(), 0)
    assert close(index, core, 1) == [Lift(make_flow(1), PORT, 1, LiftReason.CLOSED)]
    assert core.punished == 0


def test_a_timed_out_entry_releases_its_flow():
    _, core = setup(1)
    core.on_alarm(alarm(), 0)
    key = make_flow(1).key
    assert core.on_entry_gone(1, key) == [Lift(make_flow(1), PORT, 1, LiftReason.ENTRY_GONE)]
    assert core.on_entry_gone(1, key) == []
    assert [p.flow.id for p in core.on_alarm(alarm(), STEP)] == [1]


def test_a_clamp_ends_at_the_hard_limit_even_while_alarms_go_on():
    _, core = setup(1)
    core.on_alarm(alarm(), 0)
    for at in range(S, 30 * S, S):
        core.on_alarm(alarm(), at)
        assert core.on_tick(at) == []
    assert core.on_tick(30 * S) == [Lift(make_flow(1), PORT, 1, LiftReason.EXPIRED)]


def test_a_flow_whose_clamp_its_switch_refuses_is_chosen_again_only_after_the_hard_limit():
    index, core = setup(2)
    core.on_alarm(alarm(), 0)
    assert core.on_refused(1, 1, MS) == [Lift(make_flow(1), PORT, 1, LiftReason.REFUSED)]
    assert core.on_refused(1, 1, MS) == [], "it has no clamp now"
    assert (core.punished, core.is_punished(1), core.busy) == (0, False, True)
    chosen = [punish.flow.id for at in (STEP, 2 * STEP) for punish in core.on_alarm(alarm(), at)]
    assert chosen == [2], "the refused flow is no candidate"
    assert core.on_tick(MS + 30 * S - 1) == [Lift(make_flow(2), PORT, 1, LiftReason.LIMIT)]
    assert [flow.id for flow in index.candidates(PORT, 9)] == [2]
    core.on_tick(MS + 30 * S)
    assert [punish.flow.id for punish in core.on_alarm(alarm(), 31 * S)] == [1]


def test_a_refused_flow_that_a_person_slows_down_stays_clamped():
    index, core = setup(1)
    core.on_alarm(alarm(), 0)
    core.on_refused(1, 1, MS)
    core.punish(make_flow(1), 5000, S)
    assert core.on_tick(MS + 30 * S) == [], "its time of refusal is over, the clamp stays"
    assert index.candidates(PORT, 9) == []
    assert core.release(1) == [Lift(make_flow(1), PORT, 1, LiftReason.RELEASED)]
    assert [flow.id for flow in index.candidates(PORT, 9)] == [1]


def test_a_refused_flow_that_ends_leaves_nothing():
    index, core = setup(1)
    core.on_alarm(alarm(), 0)
    core.on_refused(1, 1, MS)
    assert close(index, core, 1) == []
    core.on_tick(S)
    assert not core.busy


def test_a_disconnected_switch_releases_only_its_own_flows():
    index, core = setup(1)
    other = PortKey(2, 3)
    index.add(make_flow(8, other))
    core.on_alarm(alarm(), 0)
    core.on_alarm(alarm(other), 0)
    assert core.on_switch_gone(1, MS) == [Lift(make_flow(1), PORT, 1, LiftReason.SWITCH_GONE)]
    assert core.punished == 1


def test_a_new_flow_may_have_the_5_tuple_of_a_clamped_one():
    index, core = setup(1)
    first, again = make_flow(1), Flow(2, make_flow(1).key, (Hop(1, 9, 3),), 2, 1460, 9)
    core.on_alarm(alarm(), 0)
    index.remove(1)
    index.add(again)
    assert [p.flow for p in core.on_alarm(alarm(), STEP)] == [again]
    assert core.on_flow_closed(first) == [Lift(first, PORT, 1, LiftReason.CLOSED)]
    assert core.on_flow_closed(again) == [Lift(again, PORT, 1, LiftReason.CLOSED)]
