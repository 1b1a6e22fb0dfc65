"""The fabric on a network with a loop: real bridges, real controllers, real TCP over IPv4 and IPv6."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from flowdb.models import FlowRow, HopRow, LinkRow
from tests.support.agent.switch_bench import run
from tests.support.lab.diamond import Bench, diamond, ended, switch
from tests.support.waiting import wait_until

PORT = 5000
CALLS = 24
STAYING, LEAVING = "10.0.0.1", "10.0.0.2"
MOST_S = 2.0
"""The longest interruption of traffic, in seconds, when a link or a switch fails."""
ENDED_BY_A_SEGMENT = {"fin", "rst"}
"""Every caller ends with a FIN. A late ACK may meet a closed socket, which sends a RST (decision 0052)."""


def linked(bench: Bench) -> None:
    wait_until(lambda: len([row for row in bench.rows(LinkRow) if row.up]) == 8, "four links both ways")


def ready(bench: Bench) -> None:
    """Wait until all links are found and hosts reach each other over IPv4 and IPv6."""
    linked(bench)
    pairs = (("h1", 3), ("h2", 4), ("h3", 1), ("h4", 2), ("h1", 2))
    for src, address in ((src, f"{net}{dst}") for src, dst in pairs for net in ("10.0.0.", "fd00::")):
        wait_until(lambda src=src, address=address: bench.ping(src, address), f"ping {address} from {src}")


def no_storm(bench: Bench) -> None:
    """Check that broadcasts end, also requests for hosts that do not exist."""
    for target in ("10.0.0.255", "10.0.0.77", "fd00::77"):
        bench.ping("h1", target, 3)
    before = {number: bench.frames_in(number) for number in (1, 2, 3, 4)}
    time.sleep(1)
    grown = {number: bench.frames_in(number) - count for number, count in before.items()}
    assert max(grown.values()) < 60, grown


def paths(bench: Bench) -> dict[int, tuple[list[int], list[int]]]:
    """The switches on both directions of each connection, by the client's port, as the database has them."""
    hops: dict[int, list[HopRow]] = {}
    for hop in bench.rows(HopRow):
        hops.setdefault(hop.flow_id, []).append(hop)
    found: dict[int, tuple[list[int], list[int]]] = {}
    for flow in bench.rows(FlowRow):
        way = [hop.dpid for hop in sorted(hops.get(flow.id, []), key=lambda hop: hop.position)]
        there, back = found.setdefault(max(flow.src_port, flow.dst_port), ([], []))
        (there if flow.dst_port == PORT else back).extend(way)
    return found


def known(bench: Bench, ports: list[int]) -> dict[int, tuple[list[int], list[int]]] | None:
    """The paths of all connections, or None while some are missing."""
    found = paths(bench)
    return found if all(all(found.get(port, ((), ()))) for port in ports) else None


@pytest.mark.parametrize(
    ("engine", "version", "mode", "address"),
    [("ryu", "13", "proactive", "10.0.0.3"), ("os-ken", "15", "reactive", "fd00::3")],
)
def test_flows_use_both_ways_and_survive_a_failure(
    tmp_path: Path, engine: str, version: str, mode: str, address: str
) -> None:
    with diamond(tmp_path, engine, version, f"mode = '{mode}'") as bench:
        ready(bench)
        no_storm(bench)
        bench.serve("h3", PORT)
        with bench.watching(2) as over_2, bench.watching(3) as over_3:
            caller, ports = bench.call("h1", address, PORT, CALLS)
            ways = wait_until(lambda: known(bench, ports), "the flows are in the database")
        middles = {port: ways[port][0][1] for port in ports}
        assert set(middles.values()) == {2, 3}, "both ways are used"
        for port in ports:
            assert ways[port] == ([1, middles[port], 4], [4, middles[port], 1])
            seen, other = (over_2, over_3) if middles[port] == 2 else (over_3, over_2)
            assert seen[port] == {"out", "back"}, "both directions go as the database says"
            assert port not in other
        fail(bench, mode)
        time.sleep(MOST_S + 0.5)
        moved = wait_until(lambda: now_over(bench, ports, 3), "the flows have moved in the database")
        assert {port: way for port, way in moved.items() if middles[port] == 3} == {
            port: ways[port] for port in ports if middles[port] == 3
        }
        waits = dict(zip(ports, ended(caller), strict=True))
        print({port: (middles[port], round(wait, 2)) for port, wait in waits.items()})
        assert max(waits.values()) <= MOST_S
        wait_until(lambda: close_reasons(bench), "a segment closes every flow", ENDED_BY_A_SEGMENT.issuperset)
        log = bench.log()
        assert "Traceback" not in log, log
        assert "refuses" not in log, log


def fail(bench: Bench, mode: str) -> None:
    """Pull a cable of switch 2, or remove switch 2 without a port event at its neighbours."""
    if mode == "proactive":
        run("ip", "link", "set", f"{switch(2)}-eth2", "down")
    else:
        run("ovs-vsctl", "del-br", switch(2))


def now_over(bench: Bench, ports: list[int], middle: int) -> dict[int, tuple[list[int], list[int]]] | None:
    found = {port: way for port, way in paths(bench).items() if port in ports}
    return found if all(middle in way for ways in found.values() for way in ways) else None


def test_without_agents_and_with_a_controller_that_dies(tmp_path: Path) -> None:
    """With plain Open vSwitch segments are copied, and a new controller takes over during traffic."""
    with diamond(tmp_path, "ryu", "13", extended=False) as bench:
        ready(bench)
        bench.serve("h3", PORT)
        caller, ports = bench.call("h1", "10.0.0.3", PORT, CALLS)
        ways = wait_until(lambda: known(bench, ports), "the flows are in the database")
        assert {way[0][1] for way in ways.values()} == {2, 3}
        bench.controller.kill()
        bench.controller.wait()
        assert bench.ping("h1", "10.0.0.3", 5)
        begun = len(bench.log())
        bench.start_controller()
        wait_until(lambda: bench.links_found_since(begun), "the successor finds all four links", (4).__eq__)
        wait_until(
            lambda: all(bench.ping("h1", f"fd00::{number}") for number in (2, 3, 4)), "ports have settled"
        )
        assert max(ended(caller)) <= 1.0, "nobody noticed"
        no_storm(bench)
        wait_until(lambda: close_reasons(bench), "a segment closes every flow", ENDED_BY_A_SEGMENT.issuperset)
        assert "Traceback" not in bench.log()


@pytest.mark.parametrize(("engine", "version"), [("ryu", "13"), ("os-ken", "15")])
def test_flows_that_end_without_a_controller_are_closed_by_the_next(
    tmp_path: Path, engine: str, version: str
) -> None:
    with diamond(tmp_path, engine, version) as bench:
        ready(bench)
        bench.serve("h3", PORT)
        staying, stay = bench.call("h1", "10.0.0.3", PORT, CALLS)
        leaving, leave = bench.call("h2", "10.0.0.3", PORT, CALLS)
        wait_until(lambda: known(bench, stay + leave), "the flows are in the database")
        bench.controller.kill()
        bench.controller.wait()
        ended(leaving)
        bench.start_controller()
        wait_until(lambda: len(reasons(bench, LEAVING)) == 2 * CALLS, "those that ended are closed")
        assert set(reasons(bench, LEAVING)) == {"missing"}
        assert not reasons(bench, STAYING)
        ended(staying)
        wait_until(
            lambda: Counter(reasons(bench, STAYING)),
            "the others end as any other",
            lambda found: found == {"fin": 2 * CALLS},
        )
        assert "Traceback" not in bench.log()


def close_reasons(bench: Bench) -> set[str | None]:
    """The reasons for which flows were closed; None stands for a flow that is open."""
    return {row.close_reason for row in bench.rows(FlowRow)}


def reasons(bench: Bench, client: str) -> list[str]:
    """The reasons for which closed flows of this host's connections were closed."""
    rows = (row for row in bench.rows(FlowRow) if client in (row.src, row.dst))
    return [row.close_reason for row in rows if row.close_reason]


def test_hosts_that_send_no_arp_are_found(tmp_path: Path) -> None:
    """Hosts know each other's addresses, and the controller knows no host: flooding ends all the same."""
    with diamond(tmp_path, "ryu", "13") as bench:
        ready(bench)
        bench.forget_all()
        linked(bench)
        bench.serve("h3", PORT)
        caller, ports = bench.call("h1", "10.0.0.3", PORT, CALLS)
        ways = wait_until(lambda: known(bench, ports), "the flows are in the database")
        before = [bench.frames_out(4, port_no) for port_no in (3, 4)]
        time.sleep(1)
        to_h3, to_h4 = bench.frames_out(4, 3) - before[0], bench.frames_out(4, 4) - before[1]
        assert to_h3 > 500
        assert to_h4 < 20, to_h3
        assert {way[0][-1] for way in ways.values()} == {4}
        ended(caller)
        assert "Traceback" not in bench.log()
