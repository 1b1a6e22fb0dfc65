"""The index against a plain list, and what it costs."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from flowdb.flow import FiveTuple, Flow, PortKey
from flowdb.index import FlowIndex

IDS = itertools.count(1)


def make_flow(flow_id, opened_ns=0, out_port=1, dpid=1):
    key = FiveTuple("10.0.0.1", "10.0.0.2", flow_id % 60000 + 1024, 80)
    return Flow(flow_id, key, dpid, 9, out_port, opened_ns, 1460, 7)


def test_oldest_first_and_ties_by_id():
    index = FlowIndex()
    for flow_id, opened in ((1, 30), (2, 10), (3, 10)):
        index.add(make_flow(flow_id, opened))
    order = []
    while flow := index.oldest(PortKey(1, 1)):
        order.append(flow.id)
        index.hold(flow.id)
    assert order == [2, 3, 1]
    assert index.count(PortKey(1, 1)) == 3
    assert index.count_free(PortKey(1, 1)) == 0


def test_ports_are_apart():
    index = FlowIndex()
    index.add(make_flow(1, out_port=1))
    index.add(make_flow(2, out_port=2))
    index.add(make_flow(3, out_port=1, dpid=2))
    assert index.oldest(PortKey(1, 2)).id == 2
    assert index.oldest(PortKey(2, 1)).id == 3
    assert index.oldest(PortKey(2, 2)) is None


def test_between_is_open_below_and_closed_above():
    index = FlowIndex()
    index.add(make_flow(5, opened_ns=50))
    port = PortKey(1, 1)
    assert index.any_free_between(port, (40, 0), (50, 5))
    assert not index.any_free_between(port, (50, 5), (90, 0))
    assert not index.any_free_between(port, (10, 0), (50, 4))
    index.hold(5)
    assert not index.any_free_between(port, (40, 0), (50, 5))


def test_nothing_is_left_of_a_flow_that_went():
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
    assert (index._free, index._held) == ({}, {})


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "remove", "hold", "release"]),
        st.integers(1, 8),
        st.integers(0, 5),
        st.integers(1, 2),
    ),
    max_size=60,
)


@given(STEPS)
def test_like_a_plain_list(steps):
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
        else:
            held.discard(flow_id)
            index.release(flow_id)
        for port_no in (1, 2):
            mine = [flow for flow in flows.values() if flow.out_port == port_no]
            free = sorted((f for f in mine if f.id not in held), key=lambda f: (f.opened_ns, f.id))
            port = PortKey(1, port_no)
            assert index.oldest(port) == (free[0] if free else None)
            assert index.newest(port) == (free[-1] if free else None)
            assert index.count(port) == len(mine)


def test_choosing_does_not_walk_all_flows():
    """Steps, not seconds: keys compared while one flow is chosen among 20,000 that are punished or young."""
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
