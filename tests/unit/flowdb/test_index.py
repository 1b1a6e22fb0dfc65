"""The flow index compared with a plain list, and its cost."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from flowdb.flow import FiveTuple, Flow, FlowState, Hop, PortKey
from flowdb.index import FlowIndex, by_age_active_first


def make_flow(flow_id, opened_ns=0, out_port=1, dpid=1):
    key = FiveTuple("10.0.0.1", "10.0.0.2", flow_id % 60000 + 1024, 80)
    return Flow(flow_id, key, (Hop(dpid, 9, out_port),), opened_ns, 1460, 7)


def test_flows_are_ordered_by_age_then_id():
    index = FlowIndex()
    for flow_id, opened in ((1, 30), (2, 10), (3, 10)):
        index.add(make_flow(flow_id, opened))
    order = []
    while flow := index.oldest(PortKey(1, 1)):
        order.append(flow.id)
        index.hold(flow.id)
    assert order == [2, 3, 1]
    assert index.count(PortKey(1, 1)) == 3
    assert index.count_candidates(PortKey(1, 1)) == 0


def test_ports_are_independent():
    index = FlowIndex()
    index.add(make_flow(1, out_port=1))
    index.add(make_flow(2, out_port=2))
    index.add(make_flow(3, out_port=1, dpid=2))
    assert index.oldest(PortKey(1, 2)).id == 2
    assert index.oldest(PortKey(2, 1)).id == 3
    assert index.oldest(PortKey(2, 2)) is None


def test_between_excludes_the_lower_and_includes_the_upper_bound():
    index = FlowIndex()
    index.add(make_flow(5, opened_ns=50))
    port = PortKey(1, 1)
    assert index.any_active_between(port, (40, 0), (50, 5))
    assert not index.any_active_between(port, (50, 5), (90, 0))
    assert not index.any_active_between(port, (10, 0), (50, 4))
    index.hold(5)
    assert not index.any_active_between(port, (40, 0), (50, 5))


def test_idle_flows_and_named_flows_are_not_active_between():
    index, port, every = FlowIndex(), PortKey(1, 1), ((0, 0), (90, 0))
    flow = make_flow(5, opened_ns=50)
    index.add(flow)
    assert not index.any_active_between(port, *every, {5})
    index.change(replace(flow, state=FlowState.IDLE))
    assert not index.any_active_between(port, *every)
    index.hold(5)
    index.change(flow)
    assert not index.any_active_between(port, *every), "held"
    index.release(5)
    assert index.any_active_between(port, *every, {6})


def test_a_removed_flow_leaves_nothing():
    index = FlowIndex()
    for flow_id in (1, 2):
        index.add(make_flow(flow_id))
    index.hold(1)
    assert index.remove(1).id == 1
    assert index.remove(2).id == 2
    assert index.remove(2) is None
    index.release(1)
    index.hold(2)
    assert len(index) == 0
    assert index._ports == {}


def make_long_flow(flow_id, *ports, state=FlowState.ACTIVE):
    flow = make_flow(flow_id, flow_id)
    return replace(flow, path=tuple(Hop(dpid, 9, port_no) for dpid, port_no in ports), state=state)


def test_a_flow_is_indexed_and_held_at_every_port_of_its_path():
    index = FlowIndex()
    index.add(make_long_flow(1, (1, 1), (2, 1)))
    index.add(make_long_flow(2, (2, 1), (3, 1)))
    index.hold(1)
    assert index.oldest(PortKey(1, 1)) is None
    assert index.oldest(PortKey(2, 1)).id == 2
    assert [index.count(PortKey(dpid, 1)) for dpid in (1, 2, 3)] == [1, 2, 1]
    index.release(1)
    assert index.oldest(PortKey(2, 1)).id == 1


def test_a_rerouted_flow_stays_held():
    index = FlowIndex()
    index.add(make_long_flow(1, (1, 1), (2, 1)))
    index.hold(1)
    assert index.change(make_long_flow(1, (1, 2), (3, 1)))
    assert [index.count(PortKey(*port)) for port in ((1, 1), (2, 1), (1, 2), (3, 1))] == [0, 0, 1, 1]
    assert index.count_candidates(PortKey(1, 2)) == 0
    index.release(1)
    assert index.oldest(PortKey(3, 1)).id == 1
    index.remove(1)
    assert index._ports == {}


def test_a_change_of_an_unknown_flow_is_ignored():
    index = FlowIndex()
    assert not index.change(make_flow(1))
    assert len(index) == 0


def test_candidates_follow_the_rank_without_protected_flows():
    index, port = FlowIndex(), PortKey(1, 1)
    for flow_id, sent in ((1, 10), (2, 30), (3, 20), (4, 99)):
        index.add(replace(make_long_flow(flow_id, (1, 1)), sent_bytes=sent))
    assert [flow.id for flow in index.candidates(port, 3)] == [1, 2, 3]
    index.rank_by(lambda flow: None if flow.id == 4 else (-flow.sent_bytes,))
    assert [flow.id for flow in index.candidates(port, 9)] == [2, 3, 1]
    index.change(replace(index.get(1), sent_bytes=50))
    index.hold(2)
    assert [flow.id for flow in index.candidates(port, 9)] == [1, 3]
    assert index.oldest(port).id == 1
    assert index.candidates(PortKey(7, 7), 9) == []


def test_idle_flows_rank_after_active_flows():
    index, port = FlowIndex(by_age_active_first), PortKey(1, 1)
    for flow_id in (1, 2, 3):
        index.add(make_long_flow(flow_id, (1, 1)))
    index.change(make_long_flow(1, (1, 1), state=FlowState.IDLE))
    assert [flow.id for flow in index.candidates(port, 9)] == [2, 3, 1]
    assert index.oldest(port).id == 1


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "remove", "hold", "release", "change"]),
        st.integers(1, 8),
        st.integers(0, 5),
        st.integers(1, 2),
    ),
    max_size=60,
)


@given(STEPS)
def test_the_index_equals_a_plain_list(steps):
    index, flows, held = FlowIndex(), {}, set()
    for step, flow_id, opened, out_port in steps:
        if step == "add":
            flows[flow_id] = make_flow(flow_id, opened, out_port)
            held.discard(flow_id)
            index.add(flows[flow_id])
        elif step == "remove":
            held.discard(flow_id)
            assert index.remove(flow_id) == flows.pop(flow_id, None)
        elif step == "hold":
            held |= {flow_id} & flows.keys()
            index.hold(flow_id)
        elif step == "change":
            new = make_flow(flow_id, opened, out_port)
            if index.change(new):
                flows[flow_id] = new
            assert (flow_id in flows) == (index.get(flow_id) is not None)
        else:
            held.discard(flow_id)
            index.release(flow_id)
        for port_no in (1, 2):
            mine = [flow for flow in flows.values() if flow.path[0].out_port == port_no]
            free = sorted((f for f in mine if f.id not in held), key=lambda f: (f.opened_ns, f.id))
            port = PortKey(1, port_no)
            assert index.oldest(port) == (free[0] if free else None)
            assert index.newest(port) == (free[-1] if free else None)
            assert index.candidates(port, 3) == free[:3]
            assert index.count(port) == len(mine)


def test_choosing_a_flow_compares_few_keys():
    """Counts compared keys while one flow is chosen among 20,000 that are held or young."""
    compared = 0

    class Counted(int):
        def __lt__(self, other):
            nonlocal compared
            compared += 1
            return int(self) < int(other)

    index = FlowIndex()
    for flow_id in range(1, 20_001):
        index.add(make_flow(flow_id, Counted(flow_id)))
    for flow_id in range(1, 10_001):
        index.hold(flow_id)
    compared = 0
    flow = index.oldest(PortKey(1, 1))
    index.hold(flow.id)
    assert flow.id == 10_001
    assert compared < 200
