"""Topologies against the thesis' tables 1 and 2, closed formulas and the papers' figures."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections import Counter, deque
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from mininet.topo import Topo

from mininet_topos.cli import lab
from mininet_topos.errors import BadExperiment
from mininet_topos.network.bisection import bisection_links, disjoint_paths
from mininet_topos.network.topologies import TOPOLOGIES, Census, census, make
from mininet_topos.topo import BCube, Clos, DCell, Dumbbell, FatTree, LeafSpine, Star, ThreeTier
from weir_base.paths import PROJECT

few = st.integers(1, 5)
limited = settings(max_examples=20, deadline=None)


def neighbours(topo: Topo) -> dict[str, set[str]]:
    around: dict[str, set[str]] = {node: set() for node in topo.nodes()}
    for one, other in topo.links():
        around[one].add(other)
        around[other].add(one)
    return around


def server_hops(topo: Topo) -> int:
    """The diameter as table 1 counts it for DCell and BCube: servers on one switch are one hop apart."""
    around = neighbours(topo)
    near = {
        host: {far for one in around[host] for far in (around[one] if topo.isSwitch(one) else {one})} - {host}
        for host in topo.hosts()
    }
    longest = 0
    for start in near:
        hops, waiting = {start: 0}, deque([start])
        while waiting:
            here = waiting.popleft()
            for there in near[here] - hops.keys():
                hops[there] = hops[here] + 1
                waiting.append(there)
        assert hops.keys() == near.keys()
        longest = max(longest, *hops.values())
    return longest


def degrees(topo: Topo, nodes: list[str]) -> set[int]:
    around = neighbours(topo)
    return {len(around[node]) for node in nodes}


@limited
@given(workers=st.integers(1, 40), senders=st.integers(0, 40))
def test_a_star_has_the_expected_numbers(workers: int, senders: int) -> None:
    hosts = 1 + workers + senders
    assert census(Star(workers, senders)) == Census(hosts, 1, hosts, 2)


@limited
@given(senders=few, receivers=few)
def test_a_dumbbell_has_the_expected_numbers(senders: int, receivers: int) -> None:
    hosts = senders + receivers
    found = census(Dumbbell(senders, receivers))
    assert found == Census(hosts, 2, hosts + 1, 3)


@limited
@given(aggregations=few, racks=few, servers=few)
def test_a_tree_has_the_expected_numbers(aggregations: int, racks: int, servers: int) -> None:
    tors = aggregations * racks
    diameter = 6 if aggregations > 1 else 4 if racks > 1 else 2 if servers > 1 else 0
    assert census(ThreeTier(aggregations, racks, servers)) == Census(
        tors * servers, 1 + aggregations + tors, tors * servers + tors + aggregations, diameter
    )


def test_three_tier_is_sccps_figure_3() -> None:
    """1 core, 2 aggregation and 10 ToR switches, 48 servers a rack, 480 in all."""
    topo = ThreeTier()
    assert census(topo) == Census(480, 13, 480 + 10 + 2, 6)
    assert Counter(name.rstrip("0123456789") for name in topo.switches()) == {"core": 1, "agg": 2, "tor": 10}


@pytest.mark.parametrize("f", [2, 3, 4])
def test_three_tier_is_the_basic_tree_of_table_1(f: int) -> None:
    """With table 1's n as the fan-out (its row of servers takes n - 1 for it): N = n^3."""
    n, found = f, census(ThreeTier(f, f, f))
    servers = n**3
    assert found.hosts == servers
    assert found.switches == (n**2 + n + 1) * servers // n**3
    assert found.links == n * (servers - 1) // (n - 1)
    assert found.diameter_links == 2 * round(math.log(servers, n))


@pytest.mark.parametrize("f", [2, 4])
def test_the_basic_tree_has_table_2s_bisection_width(f: int) -> None:
    assert bisection_links(ThreeTier(f, f, f)) == f // 2


@limited
@given(spines=few, leaves=st.integers(2, 5), servers=few)
def test_a_leaf_spine_has_the_expected_numbers_and_paths(spines: int, leaves: int, servers: int) -> None:
    topo = LeafSpine(spines, leaves, servers)
    assert census(topo) == Census(leaves * servers, spines + leaves, leaves * (spines + servers), 4)
    assert disjoint_paths(topo, {"leaf1"}, {"leaf2"}) == spines


@pytest.mark.parametrize("k", [4, 6, 8])
def test_fat_tree_is_that_of_table_1(k: int) -> None:
    topo = FatTree(k)
    found, n, servers = census(topo), k, k**3 // 4
    assert found.hosts == servers
    assert found.switches == 5 * servers // n == 5 * n**2 // 4
    assert found.links == servers * round(math.log(servers / 2, n / 2))
    assert found.diameter_links == 6
    assert degrees(topo, topo.hosts()) == {1}
    assert degrees(topo, topo.switches()) == {k}


def test_the_smallest_fat_tree_has_two_ports() -> None:
    assert census(FatTree(2)) == Census(2, 5, 6, 6)


@pytest.mark.parametrize("k", [2, 4, 6])
def test_fat_tree_has_table_2s_bisection_width(k: int) -> None:
    """N / 2 links between one half of the pods and the other."""
    assert bisection_links(FatTree(k)) == k**3 // 8


@pytest.mark.parametrize(("n", "servers"), [(4, 2), (4, 5), (8, 2)])
def test_clos_is_that_of_tables_1_and_2(n: int, servers: int) -> None:
    """N / n_ToR links between one half and the other, if a rack has at least as many servers as uplinks."""
    topo = Clos(n, servers)
    found, hosts = census(topo), n**2 // 4 * servers
    assert found == Census(hosts, 3 * n // 2 + n**2 // 4, hosts + 4 * hosts // servers, 6)
    assert degrees(topo, [name for name in topo.switches() if not name.startswith("tor")]) == {n}
    assert degrees(topo, topo.hosts()) == {1}
    assert bisection_links(topo) == hosts // servers


@pytest.mark.parametrize(
    ("topo", "links"),
    [
        (Star(3), 2),
        (ThreeTier(2, 2, 2), 1),
        (ThreeTier(1, 1, 1), 0),
        (Dumbbell(3, 3, 2), 2),
        (LeafSpine(2, 4, 4), 4),
    ],
)
def test_bisections_by_hand(topo: Topo, links: int) -> None:
    assert bisection_links(topo) == links


@pytest.mark.parametrize(("n", "level"), [(2, 1), (4, 1), (2, 2)])
def test_dcell_has_more_than_table_2s_least_bisection_width(n: int, level: int) -> None:
    """Table 2: more than N / (4 log_n N)."""
    topo = DCell(n, level)
    servers = len(topo.hosts())
    assert bisection_links(topo) > servers / (4 * math.log(servers, n))


DCELLS = [(2, 0), (4, 0), (2, 1), (4, 1), (6, 1), (2, 2), (3, 2)]


@pytest.mark.parametrize(("n", "level"), DCELLS)
def test_dcell_is_that_of_table_1(n: int, level: int) -> None:
    topo = DCell(n, level)
    found, k = census(topo), level
    servers = n
    for _ in range(level):
        servers *= servers + 1
    assert found.hosts == servers
    assert (n + 0.5) ** 2**k - 0.5 <= servers <= (n + 1) ** 2**k - 1
    assert found.switches == servers // n
    assert found.links == (k / 2 + 1) * servers
    assert degrees(topo, topo.hosts()) == {k + 1}
    assert server_hops(topo) <= 2 ** (k + 1) - 1


@pytest.mark.parametrize(("n", "level"), [(2, 1), (4, 1), (6, 1)])
def test_dcell_of_level_1_reaches_table_1s_diameter(n: int, level: int) -> None:
    assert server_hops(DCell(n, level)) == 3


@pytest.mark.parametrize(("n", "level"), [(2, 0), (2, 1), (4, 1), (2, 2), (3, 2), (2, 3)])
def test_bcube_is_that_of_table_1(n: int, level: int) -> None:
    topo = BCube(n, level)
    found, servers, digits = census(topo), n ** (level + 1), level + 1
    assert found.hosts == servers
    assert found.switches == servers * digits // n
    assert found.links == servers * digits
    assert degrees(topo, topo.hosts()) == {level + 1}
    assert degrees(topo, topo.switches()) == {n}
    assert server_hops(topo) == digits == found.diameter_links / 2


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("kind", [DCell, BCube])
def test_one_to_one_has_table_2s_paths(kind: Any, level: int) -> None:
    """level + 1 paths without a common link between two servers."""
    topo = kind(2, level)
    first, *others = topo.hosts()
    assert {disjoint_paths(topo, {first}, {other}) for other in others} == {level + 1}


@pytest.mark.parametrize("level", [1, 2, 3])
def test_bcube_has_table_2s_bisection_width(level: int) -> None:
    """N / 2, for n = 2: the servers of one half differ from the other's in the highest digit."""
    assert bisection_links(BCube(2, level)) == 2**level


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_interface_names_fit_and_datapath_ids_are_unique(name: str) -> None:
    """An interface's name has 15 characters at most; two switches of one datapath id cut each other off."""
    topo = TOPOLOGIES[name]()
    ids = [topo.nodeInfo(switch).get("dpid", switch.lstrip("s")) for switch in topo.switches()]
    assert len(set(ids)) == len(ids)
    for node in topo.nodes():
        assert len(f"{node}-eth{max(topo.ports[node])}") <= 15


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("ring,4", "no topology is called 'ring': use one of star, dumbbell"),
        ("fattree,5", "k is 5: want an even number"),
        ("fattree,0", "k is 0: want an integer of 2 or more; a topology is fattree,k"),
        ("fattree,four", "fattree,four: the parameters must be integers: fattree,k"),
        ("bcube,1", "n is 1: want an integer of 2 or more"),
        ("dcell,4,-1", "level is -1: want an integer of 0 or more"),
        ("threetier,1,2,3,4", "4 parameters, want 3 at most: threetier,aggregations,racks,servers"),
    ],
)
def test_a_bad_topology_is_refused_with_the_remedy(spec: str, message: str) -> None:
    with pytest.raises(BadExperiment, match=message):
        make(spec)


def test_topologies_are_listed_with_their_counts() -> None:
    result = CliRunner().invoke(lab, ["topologies", "--json"])
    rows = {row["topology"]: row for row in json.loads(result.stdout)}
    assert set(rows) == set(TOPOLOGIES)
    assert rows["fattree"] == {
        "topology": "fattree",
        "parameters": {"k": 4},
        "hosts": 16,
        "switches": 20,
        "links": 48,
        "diameter_links": 6,
        "bisection_links": 8,
    }


def test_a_topology_with_given_parameters_is_counted() -> None:
    result = CliRunner().invoke(lab, ["topologies", "bcube,2,2"])
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1].split() == ["bcube", "n=2,", "level=2", "8", "12", "24", "6", "4"]


def test_mn_can_execute_the_file_alone() -> None:
    """`mn --custom` executes the file by itself, without this project on its path."""
    script = (
        "customs = {}\n"
        f"exec(open({str(PROJECT / 'mininet_topos' / 'topo.py')!r}).read(), customs)\n"
        "print(sorted(customs['topos']), len(customs['topos']['fattree'](4).hosts()))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True, cwd="/"
    )
    assert done.stdout.split()[-1] == "16"
