"""Graphs and paths: shortest, symmetric, without loops, and present while the graph is connected."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise, product
from statistics import mean

from hypothesis import given, settings
from hypothesis import strategies as st

from fabric_app.graph import Graph, Link
from fabric_app.paths import BUCKETS, MOST_ADDRESSES, UNKNOWN_PORT, Paths, _low_bits, bucket_of, seen_path
from flowdb.flow import FiveTuple, Hop, PortKey
from tests.support.controllers.fake_network import link

SWITCHES = st.integers(1, 8)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    pairs = draw(st.lists(st.tuples(SWITCHES, SWITCHES), max_size=20))
    links = {link(a, 10 + 2 * n, b, 11 + 2 * n) for n, (a, b) in enumerate(pairs)}
    return Graph(range(1, 9), links)


def distance(graph: Graph, a: int, b: int) -> int | None:
    """Distances by repeated widening, unlike the code under test."""
    reached, steps = {a}, 0
    while b not in reached:
        wider = reached | {s.peer.dpid for dpid in reached for s in graph.steps(dpid)}
        if wider == reached:
            return None
        reached, steps = wider, steps + 1
    return steps


def check(graph: Graph, a: int, b: int) -> None:
    paths = Paths(graph)
    src, dst, hops = PortKey(a, 1), PortKey(b, 2), distance(graph, a, b)
    for bucket in range(BUCKETS):
        there, back = paths.between(src, dst, bucket), paths.between(dst, src, bucket)
        if hops is None:
            assert there is None
            assert back is None
            continue
        assert there is not None
        assert back is not None
        assert len(there) == hops + 1
        assert len({hop.dpid for hop in there}) == len(there)
        assert [Hop(hop.dpid, hop.out_port, hop.in_port) for hop in reversed(there)] == list(back)
        for near, far in pairwise(there):
            assert graph.peer(near.port) == PortKey(far.dpid, far.in_port)
        for at, hop in enumerate(there[:-1]):
            assert paths.ports(hop.dpid, b) is not None
            assert paths.ports(hop.dpid, b)[bucket] == there[at].out_port, "each switch knows its own part"


@given(graphs(), SWITCHES, SWITCHES)
def test_paths_are_shortest_and_symmetric_after_any_failure(graph: Graph, a: int, b: int) -> None:
    check(graph, a, b)


@settings(max_examples=50)
@given(graphs(), st.data())
def test_after_any_failure(graph: Graph, data: st.DataObject) -> None:
    links, switches = set(graph.links), set(graph.switches)
    for _ in range(3):
        if links and data.draw(st.booleans()):
            links.discard(data.draw(st.sampled_from(sorted(links, key=str))))
        elif len(switches) > 1:
            switches.discard(data.draw(st.sampled_from(sorted(switches))))
        a, b = (data.draw(st.sampled_from(sorted(switches))) for _ in range(2))
        check(Graph(switches, links), a, b)


@given(graphs())
def test_a_failure_moves_only_the_flows_of_the_failed_link(graph: Graph) -> None:
    for gone in sorted(graph.links, key=str)[:3]:
        before, after = Paths(graph), Paths(Graph(graph.switches, graph.links - {gone}))
        for bucket in range(BUCKETS):
            path = before.between(PortKey(1, 1), PortKey(8, 2), bucket)
            if path and not {hop.port for hop in path} & set(gone.ends):
                assert after.between(PortKey(1, 1), PortKey(8, 2), bucket) == path


@given(graphs())
def test_the_spanning_tree_reaches_every_switch_once(graph: Graph) -> None:
    tree = {one for one in graph.links if set(one.ends) <= graph.tree_ports}
    parts = len({frozenset(graph.distances(dpid)) for dpid in graph.switches})
    assert len(tree) == len(graph.switches) - parts
    assert {frozenset(Graph(graph.switches, tree).distances(d)) for d in graph.switches} == {
        frozenset(graph.distances(d)) for d in graph.switches
    }


def test_parallel_links_and_switches_share_the_buckets() -> None:
    parallel = Graph([1, 2], {link(1, n, 2, n) for n in (1, 2)})
    assert set(Paths(parallel).ports(1, 2) or ()) == {1, 2}
    middles = {Link.of(PortKey(1, m), PortKey(m, 1)) for m in (2, 3, 4, 5)}
    middles |= {Link.of(PortKey(9, m), PortKey(m, 9)) for m in (2, 3, 4, 5)}
    ports = Paths(Graph([1, 2, 3, 4, 5, 9], middles)).ports(1, 9) or ()
    assert set(ports) == {2, 3, 4, 5}


def test_two_parallel_links_share_the_buckets_nearly_evenly() -> None:
    """The buckets of the busier link. With one hash for each bucket it had up to 14, and 9.6 on average."""
    busier = []
    for near, far, first in product(range(1, 4), range(4, 7), range(1, 9)):
        links = {link(near, port, far, port) for port in (first, first + 1)}
        ports = Paths(Graph([near, far], links)).ports(near, far) or ()
        busier.append(max(Counter(ports).values()))
    assert max(busier) <= 11
    assert mean(busier) <= 9


def test_a_path_is_built_from_reported_ports() -> None:
    graph = Graph([1, 2, 3], {link(1, 5, 2, 6), link(2, 7, 3, 8)})
    assert seen_path(graph, {2: 7}) == (Hop(2, UNKNOWN_PORT, 7),)
    assert seen_path(graph, {3: 1, 2: 7, 1: 5}) == (Hop(1, UNKNOWN_PORT, 5), Hop(2, 6, 7), Hop(3, 8, 1))
    assert seen_path(graph, {1: 5, 3: 1}) == (Hop(1, UNKNOWN_PORT, 5), Hop(3, UNKNOWN_PORT, 1))
    assert seen_path(graph, {1: 5, 2: 6}) == (Hop(1, 5, 5), Hop(2, 6, 6)), "reports of a loop end"


def test_the_memory_of_addresses_is_bounded() -> None:
    for number in range(MOST_ADDRESSES + 10):
        bucket_of(FiveTuple(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", "10.9.9.9", 1, 80))
    assert _low_bits.cache_info().currsize == MOST_ADDRESSES
