"""The control loop over many switches: one clamp for each flow, or one for each port that wants it."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from app_base.scope import Scope
from flowdb.flow import FiveTuple, Flow, FlowState, Hop, PortKey
from flowdb.index import FlowIndex, by_age_active_first
from sdtcp_app.core import Sdtcp
from sdtcp_app.core_types import Alarm, Equation, Lift, LiftReason, Parameters, Punish, Resume

MS = 1_000_000
S = 1000 * MS
STEP = 1_500_000
LEFT, MIDDLE, RIGHT = PortKey(1, 2), PortKey(2, 2), PortKey(3, 2)


def make_flow(flow_id, *ports, **changed):
    key = FiveTuple("10.0.0.1", "10.0.0.2", flow_id % 60_000, 80)
    path = tuple(Hop(port.dpid, 9, port.port_no) for port in ports)
    return replace(Flow(flow_id, key, path, flow_id, 1460, 9), **changed)


def alarm(port, queue_bytes=45_000, n_i=0, rate_bps=100_000_000):
    return Alarm(port, queue_bytes, rate_bps, n_i)


def setup(*flows, switches=(1, 2, 3), corrects=False):
    index = FlowIndex()
    for flow in flows:
        index.add(flow)
    core = Sdtcp(index, Parameters(corrects_allowance=corrects))
    for dpid in switches:
        core.on_switch(dpid, 0)
    return index, core


def test_a_flow_is_clamped_at_the_first_switch_of_its_acks():
    _, core = setup(make_flow(1, LEFT, MIDDLE, RIGHT))
    (punish,) = core.on_alarm(alarm(LEFT), 0)
    assert (punish.port, punish.switch) == (LEFT, 3)


def test_a_flow_is_clamped_at_the_next_switch_if_the_first_is_disconnected():
    _, core = setup(make_flow(1, LEFT, MIDDLE, RIGHT), switches=(1, 2))
    (punish,) = core.on_alarm(alarm(LEFT), 0)
    assert punish.switch == 2


def test_a_clamped_flow_is_not_a_candidate_of_another_port():
    _, core = setup(make_flow(1, LEFT, RIGHT), make_flow(2, RIGHT), make_flow(3, RIGHT))
    core.on_alarm(alarm(LEFT), 0)
    (punish,) = core.on_alarm(alarm(RIGHT), 0)
    assert (punish.flow.id, punish.candidates) == (2, 2)


def test_the_smallest_window_holds_until_the_last_port_releases_it():
    """The right port's share is larger than the left port's falling window, so it waits for its end."""
    index, core = setup(make_flow(1, LEFT, RIGHT), make_flow(2, LEFT))
    (first,) = core.on_alarm(alarm(LEFT), 0)
    index.remove(2)
    (share,) = core.on_alarm(alarm(RIGHT, queue_bytes=400_000), 0)
    assert (first.in_force, share.in_force, share.equation) == (True, False, Equation.SHARED)
    assert core.on_normal(LEFT, MS) == [Resume(replace(share, in_force=True))]
    assert core.punished == 1
    assert core.on_tick(2 * S) == [Lift(first.flow, RIGHT, 3, LiftReason.LIMIT)]
    assert core.punished == 0


def test_a_smaller_share_of_a_second_port_comes_into_force():
    _, core = setup(make_flow(1, LEFT, RIGHT))
    core.on_alarm(alarm(LEFT), 0)
    core.on_alarm(alarm(LEFT), STEP)
    (share,) = core.on_alarm(alarm(RIGHT, queue_bytes=1000), STEP)
    assert share.in_force
    assert share.window_bytes == 13_500
    lifts = core.on_switch_gone(1, 2 * STEP)
    assert lifts == [], "the port that is left wants the window that is in force"


def test_a_port_that_corrects_its_allowance_has_clamps_of_its_own():
    """Each port corrects the windows of its own switch. The end of a flow ends all of its clamps."""
    flow = make_flow(1, LEFT, RIGHT)
    index, core = setup(flow, corrects=True)
    (left,) = core.on_alarm(alarm(LEFT), 0)
    (right,) = core.on_alarm(alarm(RIGHT), 0)
    assert [(one.switch, one.equation, one.in_force) for one in (left, right)] == [
        (1, Equation.PUNISHED, True),
        (3, Equation.SHARED, True),
    ]
    assert core.punished == 1
    assert core.on_alarm(alarm(RIGHT), STEP) == [], "its share did not change"
    assert core.on_normal(LEFT, 2 * STEP) == [Lift(flow, LEFT, 1, LiftReason.NORMAL)]
    assert index.candidates(LEFT, 9) == [], "the other port still wants its clamp"
    core.on_alarm(alarm(LEFT), 3 * STEP)
    lifts = {(lift.switch, lift.reason) for lift in core.on_flow_closed(flow)}
    assert lifts == {(1, LiftReason.CLOSED), (3, LiftReason.CLOSED)}
    assert (core.punished, index.candidates(LEFT, 9)) == (0, [flow])


def test_a_flow_that_another_port_only_observes_is_chosen_once():
    flow = make_flow(1, LEFT, RIGHT)
    _, core = setup(flow, corrects=True)
    core.parameters = replace(core.parameters, scope=Scope(switches=frozenset({3})))
    (observed,) = core.on_alarm(alarm(LEFT), 0)
    (punish,) = core.on_alarm(alarm(RIGHT), 0)
    assert (observed.observed, punish.observed, punish.equation) == (True, False, Equation.PUNISHED)
    (share,) = core.on_alarm(alarm(RIGHT), STEP)
    assert share.equation is Equation.SHARED, "no candidate is left"


def test_clamps_stay_where_they_are_if_the_setting_changes():
    index, core = setup(make_flow(1, LEFT, RIGHT), make_flow(2, LEFT))
    core.on_alarm(alarm(LEFT), 0)
    index.remove(2)
    core.parameters = replace(core.parameters, corrects_allowance=True)
    (share,) = core.on_alarm(alarm(LEFT), STEP)
    assert share.switch == 3, "the port wants this clamp already"
    core.parameters = replace(core.parameters, corrects_allowance=False)
    (other,) = core.on_alarm(alarm(RIGHT, queue_bytes=400_000), STEP)
    assert other.switch == 3
    assert [lift.switch for lift in core.release(1)] == [3]


def test_a_flow_is_slowed_by_hand_at_the_first_switch_of_its_acks():
    flow = make_flow(1, LEFT, MIDDLE, RIGHT)
    _, core = setup(flow, switches=(1, 2), corrects=True)
    assert [one.switch for one in core.punish(flow, 5000, 0)] == [2]
    assert [one.switch for one in core.on_alarm(alarm(LEFT), 0)] == [1]
    assert {lift.switch for lift in core.release(1)} == {1, 2}


def test_a_disconnected_port_leaves_the_clamps_of_others():
    _, core = setup(make_flow(1, LEFT, RIGHT), make_flow(2, LEFT, MIDDLE))
    core.on_alarm(alarm(LEFT), 0)
    core.on_alarm(alarm(LEFT), STEP)
    assert {lift.flow.id for lift in core.on_switch_gone(3, STEP)} == {1}, "whose entry went"
    assert core.on_switch_gone(1, STEP) == [Lift(make_flow(2, LEFT, MIDDLE), LEFT, 2, LiftReason.SWITCH_GONE)]


def test_the_rtt_is_the_least_handshake_of_the_first_candidates():
    flows = [make_flow(n, LEFT, handshake_rtt_us=rtt) for n, rtt in ((1, 12_000), (2, 400), (3, None))]
    _, core = setup(*flows)
    (punish,) = core.on_alarm(alarm(LEFT), 0)
    assert punish.rtt_us == 400
    assert punish.wc_bytes == (100_000_000 * 400 // 8_000_000 + 45_000) // 3


def test_a_reflex_becomes_a_clamp_and_counts_as_a_step():
    index, core = setup(make_flow(1, LEFT, RIGHT), make_flow(2, LEFT))
    first, second = core.armed(alarm(LEFT), 5)
    assert [first.flow.id, second.flow.id] == [1, 2]
    assert core.on_reflex(first, 0) == [first]
    assert core.on_alarm(alarm(LEFT), MS) == []
    assert core.on_reflex(first, MS) == []
    assert [punish.flow.id for punish in core.on_alarm(alarm(LEFT), STEP)] == [1, 2]
    index.remove(1)
    assert core.on_flow_closed(first.flow)
    assert core.on_reflex(first, 2 * STEP) == [], "the flow is gone"


def test_a_clamp_by_hand_lasts_until_release_or_the_hard_limit():
    flow = make_flow(1, LEFT, RIGHT)
    _, core = setup(flow)
    (punish,) = core.punish(flow, 1, 0)
    assert (punish.equation, punish.window_bytes, punish.alpha) == (Equation.BY_HAND, 1460, 0)
    assert core.release(1) == [Lift(flow, RIGHT, 3, LiftReason.RELEASED)]
    assert core.release(1) == []
    core.punish(flow, 5000, 0)
    (share,) = core.on_alarm(alarm(RIGHT), 0)
    assert not share.in_force
    assert [lift.reason for lift in core.on_tick(30 * S)] == [LiftReason.EXPIRED]
    assert core.on_tick(31 * S) == []
    assert not core.busy


def test_idle_flows_are_slowed_last():
    idle = (make_flow(number, LEFT, state=FlowState.IDLE) for number in (1, 3))
    index, core = setup(*idle, make_flow(2, LEFT))
    index.rank_by(by_age_active_first)
    chosen = [core.on_alarm(alarm(LEFT), at)[0].flow.id for at in (0, STEP)]
    assert chosen == [2, 1]


def test_an_alarm_of_an_unknown_port_does_nothing():
    _, core = setup(make_flow(1, LEFT))
    assert core.on_alarm(alarm(PortKey(7, 7)), 0) == []
    assert core.on_normal(PortKey(8, 8), 0) == []
    assert core.on_tick(S) == []
    assert not core.busy


def test_a_share_of_a_thousand_flows_checks_each_once():
    """Equation (5) checks every flow only if a flow was added or the share fell."""
    _, core = setup(*(make_flow(n, LEFT) for n in range(1, 301)))
    for step in range(299):
        core.on_alarm(alarm(LEFT), step * STEP)
    assert len(core.on_alarm(alarm(LEFT), 299 * STEP)) == 300
    assert core.on_alarm(alarm(LEFT), 300 * STEP) == [], "checks all, because the last flow was added"
    decided = []
    core._decide = lambda *args, plain=core._decide: decided.append(args) or plain(*args)
    assert core.on_alarm(alarm(LEFT), 301 * STEP) == []
    assert len(decided) == 1


STEP_NAMES = [
    "open", "open", "close", "alarm", "alarm", "alarm", "normal", "tick", "entry-gone", "switch-gone",
    "switch", "reflex", "release", "by-hand", "reroute", "idle", "refused",
]  # fmt: skip
PATHS = [(LEFT, RIGHT), (MIDDLE, RIGHT), (LEFT, MIDDLE, RIGHT), (RIGHT,), (PortKey(1, 3), MIDDLE)]
PORTS = sorted({port for path in PATHS for port in path}, key=str)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(STEP_NAMES),
        st.integers(0, 99),
        st.sampled_from([0, 100_000, MS, STEP, 7 * MS, S, 40 * S, -2 * STEP]),
    ),
    max_size=80,
)


class Run:
    """Plays steps, and keeps the entries that the switches would hold, by flow and switch."""

    def __init__(self, corrects):
        self.index, self.now, self.next_id = FlowIndex(by_age_active_first), 100 * S, 1
        self.core = Sdtcp(self.index, Parameters(corrects_allowance=corrects))
        self.core.on_switch(2, 0)
        self.core.on_switch(3, 0)
        self.entries, self.decisions, self.punished_at = {}, [], {}
        self.refused = set()

    def play(self, step, number, passed):
        self.now += passed
        port, flows = PORTS[number % len(PORTS)], sorted(self.index.flows(), key=lambda flow: flow.id)
        flow = flows[number % len(flows)] if flows else None
        for decision in self.step(step, number, port, flow):
            self.decisions.append(decision)
            self.carry_out(decision)
        punished = {flow_id for flow_id, _ in self.entries}
        assert len(punished) == self.core.punished
        assert self.core.parameters.corrects_allowance or len(punished) == len(self.entries)
        held = {flow.id for flow in self.index.flows()} - {
            free.id for port in PORTS for free in self.index.candidates(port, 999)
        }
        assert held <= punished | self.refused

    def step(self, step, number, port, flow):
        if step == "open":
            rtt = (None, 300, 9000)[number % 3]
            mss, scale = (1460, 536, 8960)[number % 3], (9, 0, None)[number % 3]
            made = make_flow(self.next_id, *PATHS[number % len(PATHS)], handshake_rtt_us=rtt)
            self.index.add(replace(made, mss_bytes=mss, receiver_wscale=scale))
            self.next_id += 1
        elif step == "close" and flow:
            self.index.remove(flow.id)
            return self.core.on_flow_closed(flow)
        elif step == "alarm":
            return self.alarm(port, number)
        elif step == "normal":
            return self.core.on_normal(port, self.now)
        elif step == "tick":
            return self.core.on_tick(self.now)
        elif step == "entry-gone" and self.entries:
            (_, switch), punish = list(self.entries.items())[number % len(self.entries)]
            return self.core.on_entry_gone(switch, punish.flow.key)
        elif step == "refused" and self.entries:
            flow_id, switch = list(self.entries)[number % len(self.entries)]
            self.refused.add(flow_id)
            return self.core.on_refused(flow_id, switch, self.now)
        elif step in ("switch", "switch-gone"):
            gone = 1 + number % 3
            self.punished_at = {port: at for port, at in self.punished_at.items() if port.dpid != gone}
            tell = self.core.on_switch if step == "switch" else self.core.on_switch_gone
            return tell(gone, self.now)
        elif step == "reflex" and (armed := self.core.armed(alarm(port), 3)):
            self.punished_at[port] = self.now
            return self.core.on_reflex(armed[number % len(armed)], self.now)
        elif step == "release" and flow:
            return self.core.release(flow.id)
        elif step == "by-hand" and flow:
            return self.core.punish(flow, number * 1000, self.now)
        elif step == "reroute" and flow:
            self.index.change(replace(flow, path=make_flow(1, *PATHS[number % len(PATHS)]).path))
        elif step == "idle" and flow:
            self.index.change(replace(flow, state=(FlowState.IDLE, FlowState.ACTIVE)[number % 2]))
        return []

    def alarm(self, port, number):
        decisions = self.core.on_alarm(alarm(port, 1000 * number, number % 50, 10**8), self.now)
        wanted = [one for one in decisions if isinstance(one, Punish)]
        if wanted:
            assert self.now - self.punished_at.get(port, -S) >= STEP
            assert {one.equation for one in wanted} in ({Equation.PUNISHED}, {Equation.SHARED})
            assert len(wanted) == 1 or wanted[0].equation is Equation.SHARED
            self.punished_at[port] = self.now
        return decisions

    def carry_out(self, decision):
        if isinstance(decision, Lift):
            del self.entries[decision.flow.id, decision.switch]
            return
        punish = decision.punish if isinstance(decision, Resume) else decision
        flow, largest = punish.flow, punish.flow.largest_window_bytes
        assert punish.window_bytes >= flow.mss_bytes
        if punish.equation is not Equation.BY_HAND and largest is not None:
            assert punish.window_bytes <= max(largest, flow.mss_bytes)
        if isinstance(decision, Punish) and not decision.in_force:
            assert self.entries[flow.id, punish.switch].settles_at <= punish.settles_at
            return
        self.entries[flow.id, punish.switch] = punish


def play(steps, corrects):
    run = Run(corrects)
    for step in steps:
        run.play(*step)
    return run


@settings(max_examples=250, deadline=None)
@given(STEPS, st.booleans())
def test_after_any_sequence_of_calls_every_clamp_ends(steps, corrects):
    run = play([*steps, ("tick", 0, 75 * S), *[("tick", 0, STEP)] * 150], corrects)
    assert run.entries == {}
    assert not run.core.busy
    assert all(run.index.count(port) == run.index.count_candidates(port) for port in PORTS)


@settings(max_examples=60, deadline=None)
@given(STEPS, st.booleans())
def test_a_replay_gives_the_same_decisions(steps, corrects):
    assert play(steps, corrects).decisions == play(steps, corrects).decisions
