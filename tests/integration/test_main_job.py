"""SDTCP and SCCP at work on a real network: on the wire, in sockets, entries, database rows and tables."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from app_base.pipeline import FABRIC_TABLE
from flowdb.models import AlarmRow, ClampRow, DecisionRow, FlowRow, RunRow, SwitchRow
from mininet_topos.network.lab_network import Network, network
from mininet_topos.network.layout import star
from mininet_topos.network.nodes import LabHost
from mininet_topos.network.shaping import Bottleneck
from mininet_topos.running.traffic_programs import SINK_PORT, WORKER_PORT
from sccp_app.stage import STAGE as SCCP_STAGE
from sdtcp_app.stage import STAGE as SDTCP_STAGE
from tests.support.lab.stage import ROOT_PORT, Socket, Stage, capture, sockets, stage
from tests.support.waiting import wait_until

RATE_BPS, QUEUE_BYTES = 100_000_000, 150_000
WORKERS, LONG_FLOWS = 6, 2
COMMON_RTT_US = 600
LONE_QUEUE_PART = 16
"""A flow that is the only active sender may keep this part of the queue besides its share."""
RTT_US, K_PKTS = 10_000, 40
SDTCP = {
    "rtt_us": RTT_US,
    "k_pkts": K_PKTS,
    "clamp_limit_s": 60.0,
    "corrects_allowance": False,
}
"""Long steps, so that the queue drains before all are slowed; no limit before the burst's FINs."""
SWITCH = {"idle_s": 10.0}
"""The long flows wait while the burst's connections are opened. That makes none of them idle."""
HARD_TIMEOUT_S = 3
CHECKED_WITHIN_S = 10
"""The test looks at entries by processes of their own, which a busy machine starts late."""
LIFTED_WITHIN_NS = 10_000_000_000
"""Far less than the clamps' own limit of 60 s."""


@pytest.fixture(scope="module")
def net() -> Iterator[Network]:
    with network(star(WORKERS, LONG_FLOWS, Bottleneck(RATE_BPS, queue_bytes=QUEUE_BYTES))) as built:
        yield built


def senders_punished(on: Stage) -> bool:
    return {address for address, _ in on.punished()} >= {host.IP() for host in on.net.senders}


def mod_window_entries(on: Stage) -> list[str]:
    return [line for line in on.entries(SDTCP_STAGE.table) if "priority=65535" in line]


def behind_its_clamp(
    on: Stage, host: LabHost, port: int, count: int, share_bytes: int = 0, lone_share_bytes: int | None = None
) -> Socket:
    """Check the ACKs that a sender gets: their checksums are right, and their windows are clamped.

    A window holds at least one segment. It holds at most the flow's share and two segments (for senders that
    would wait for delayed ACKs), rounded up to a step of the scale. ``lone_share_bytes`` is the share of
    a flow that is the port's only active sender for a moment: a busy machine may stop the other sender for
    longer than a turn. Then most windows keep the first limit, and all of them this one.
    """
    seen = capture(host, port, count)
    (sender,) = sockets(host, port)
    assert set(seen.checksums) == {"correct"}
    windows = [sender.snd_wnd, *(window << sender.peer_wscale for window in seen.windows_in)]
    more_bytes = 2 * sender.advmss + (1 << sender.peer_wscale)
    assert min(windows) > sender.advmss
    assert max(windows) <= (lone_share_bytes or share_bytes) + more_bytes
    assert median(windows) <= share_bytes + more_bytes
    return sender


def test_sdtcp_punishes_long_flows_and_releases_them_after_the_burst(net: Network, tmp_path: Path) -> None:
    with stage(net, tmp_path, "sdtcp", {"sdtcp": SDTCP, "switch": SWITCH}) as on:
        _, root = on.start()
        wait_until(lambda: senders_punished(on), "MOD_WINDOW entries for both long flows")
        clamped = on.root_port()["clamped"]
        sender = behind_its_clamp(on, net.senders[0], SINK_PORT, 500)
        assert sender.rwnd_limited > 0
        for address, port in on.punished():
            flow = f"nw_src={net.root.IP()},nw_dst={address},"
            entry = next(
                line for line in on.entries(SDTCP_STAGE.table) if flow in line and f"tp_dst={port}" in line
            )
            assert "priority=65535" in entry
            assert "send_flow_rem" in entry
            assert f"goto_table:{SCCP_STAGE.table}" in entry
        on.await_queries(on.count("query") + 5)
        assert senders_punished(on), "the clamps last as long as the burst"
        assert on.root_port()["clamped"] > clamped
        root.stop()
        fin_ns = wait_until(lambda: burst_closed_ns(on), "the burst's FINs")
        lifted = wait_until(lambda: lifted_since(on, fin_ns), "a long flow's clamp is lifted")
        held = [row for row in on.rows(ClampRow) if row.pushed_ns < fin_ns < (row.lifted_ns or fin_ns + 1)]
        assert {row.flow_id for row in held} >= {
            row.id for row in on.rows(FlowRow) if row.dst_port == SINK_PORT
        }
    assert lifted.lift_reason == "normal and burst over"
    assert lifted.lifted_ns < fin_ns + LIFTED_WITHIN_NS
    decision_is_whole(on, lifted)


def burst_closed_ns(on: Stage) -> int | None:
    """The time at which the last of the burst's flows into the root ended; None before that."""
    rows = on.rows(FlowRow)
    oldest_ns = min(row.opened_ns for row in rows if row.dst_port == SINK_PORT)
    burst = [row for row in rows if row.src_port == WORKER_PORT and row.opened_ns > oldest_ns]
    if len(burst) < WORKERS or any(row.closed_ns is None for row in burst):
        return None
    assert {row.close_reason for row in burst} <= {"fin", "rst"}, (
        "RST where the root had answers left to read"
    )
    return max(row.closed_ns for row in burst if row.closed_ns is not None)


def lifted_since(on: Stage, fin_ns: int) -> ClampRow | None:
    """The first clamp of a long flow that was lifted after the burst's FINs."""
    long_flows = {row.id for row in on.rows(FlowRow) if row.dst_port == SINK_PORT}
    ours = [row for row in on.rows(ClampRow) if row.flow_id in long_flows and row.pushed_ns < fin_ns]
    since = [row for row in ours if row.lifted_ns is not None and row.lifted_ns > fin_ns]
    return min(since, key=lambda row: row.lifted_ns or 0, default=None)


def decision_is_whole(on: Stage, clamp: ClampRow) -> None:
    """The row holds every input, from which equations (2) and (3) give its window."""
    (decision,) = [row for row in on.rows(DecisionRow) if row.id == clamp.decision_id]
    (alarm,) = [row for row in on.rows(AlarmRow) if row.id == decision.alarm_id]
    flows = {row.id: row for row in on.rows(FlowRow)}
    assert (alarm.kind, alarm.port_no, clamp.port_no) == ("alarm", ROOT_PORT, ROOT_PORT)
    assert alarm.queue_pkts >= K_PKTS
    assert 0 <= alarm.received_ns - alarm.crossing_ns < 1_000_000_000
    assert (decision.policy, decision.equation, decision.alpha) == ("longest-lived-active", 3, 5)
    assert decision.capacity_bps == RATE_BPS
    assert 0 < decision.rtt_us < 1_000_000, "measured by a handshake"
    assert decision.queue_bytes == alarm.queue_bytes
    assert decision.wr_bytes is not None
    assert 1 <= decision.candidates <= decision.n == WORKERS + LONG_FLOWS
    in_all_bytes = decision.capacity_bps * decision.rtt_us // 8_000_000 + decision.queue_bytes
    assert decision.wc_bytes == in_all_bytes // decision.n
    window_bytes = max(min(decision.wc_bytes // 2, decision.wr_bytes), decision.mss_bytes)
    assert decision.window_bytes == clamp.window_bytes == window_bytes
    assert flows[clamp.flow_id].dst_port == SINK_PORT
    assert flows[clamp.flow_id].mss_bytes == decision.mss_bytes


@pytest.mark.parametrize("written", [True, False], ids=["written", "unwritten"])
def test_after_a_controller_is_killed_clamps_end_and_a_successor_answers_alarms(
    net: Network, tmp_path: Path, written: bool
) -> None:
    """Traffic continues, clamps end by their hard timeout, and a new controller answers the next alarm.

    It knows the flows from the database or, if they are missing there, from the switch's reports.
    """
    settings = {
        "sdtcp": SDTCP | {"idle_timeout_s": 2, "hard_timeout_s": HARD_TIMEOUT_S},
        "switch": SWITCH,
    }
    with stage(net, tmp_path, "sdtcp", settings) as on:
        on.start()
        wait_until(lambda: senders_punished(on), "MOD_WINDOW entries for both long flows")
        if written:
            wait_until(lambda: on.rows(ClampRow), "the decisions are written, and the flows before them")
        argv = on.kill_controller()
        killed, done = time.monotonic(), on.count("query")
        if not written:
            on.lose_database()
        assert senders_punished(on), "the clamps outlive their controller"
        wait_until(lambda: not on.rules(), "the clamps end by themselves")
        wait_until(lambda: not mod_window_entries(on), "and so does Open vSwitch's part of them")
        assert time.monotonic() - killed < HARD_TIMEOUT_S + CHECKED_WITHIN_S, (
            "the hard timeout ends the clamps"
        )
        on.await_queries(done + 10)
        with on.successor(argv) as started_ns:
            wait_until(lambda: senders_punished(on), "the successor answers an alarm")
            late = wait_until(
                lambda: [row for row in on.rows(DecisionRow) if row.decided_ns > started_ns],
                "its decisions are in the database",
            )
            flows = {row.id: row for row in on.rows(FlowRow)}
            assert flows[late[0].flow_id].opened_ns < started_ns, "it knows flows that it did not see open"
            before = [row for row in on.rows(ClampRow) if row.pushed_ns < started_ns]
            assert bool(before) == written
            assert all(row.lifted_ns is not None for row in before)
            assert len(on.rows(RunRow)) == 1 + written


def test_sccp_with_and_without_its_controller(net: Network, tmp_path: Path) -> None:
    with stage(net, tmp_path, "sccp") as on:
        table_i_is_readable(on)
        long_flows, root = on.start()
        wait_until(lambda: on.root_port()["n_i"], "all flows are counted", (WORKERS + LONG_FLOWS).__eq__)
        share = RATE_BPS * COMMON_RTT_US // 8_000_000 // (WORKERS + LONG_FLOWS)
        wait_until(on.root_share_bytes, "all flows share while a query's responses are sent", share.__eq__)
        bdp_bytes = RATE_BPS * COMMON_RTT_US // 8_000_000
        between_queries, alone = bdp_bytes // LONG_FLOWS, bdp_bytes + QUEUE_BYTES // LONE_QUEUE_PART
        long_flow = behind_its_clamp(on, net.senders[0], SINK_PORT, 500, between_queries, alone)
        assert long_flow.rwnd_limited > 0.5
        behind_its_clamp(on, net.workers[0], WORKER_PORT, 100, between_queries, alone)
        argv = on.kill_controller()
        root.stop()
        wait_until(lambda: on.root_port()["n_i"], "the burst's flows have ended", LONG_FLOWS.__eq__)
        root = on.start_queries()
        with on.successor(argv) as started_ns:
            wait_until(lambda: taken_over(on, started_ns), "the successor has the switch")
            assert on.root_port()["n_i"] == WORKERS + LONG_FLOWS
            table_i_is_readable(on)
            root.stop()
            for flow in long_flows:
                flow.stop()
            wait_until(lambda: on.root_port()["n_i"], "all flows have ended", (0).__eq__)
        counters = on.root_port()
        assert counters["untracked"] == 0
        assert counters["syns_counted"] == counters["fins_counted"]


def taken_over(on: Stage, since_ns: int) -> bool:
    return any(row.connected and row.last_seen_ns > since_ns for row in on.rows(SwitchRow))


def table_i_is_readable(on: Stage) -> None:
    """Four disjoint entries for IPv4 and IPv6 each. Open vSwitch's part of each goes to the next table."""
    entries = [line for line in on.entries(SCCP_STAGE.table) if "cookie=0x57454903" in line]
    for protocol in ("tcp", "tcp6"):
        ours = [line for line in entries if f",{protocol}," in line]
        flags = {line.partition("tcp_flags=")[2].partition(" ")[0] for line in ours}
        assert flags == {"+syn", "+fin-syn", "-fin-syn+rst", "-fin-syn-rst"}
        assert all(line.endswith(f"actions=goto_table:{FABRIC_TABLE}") for line in ours)
    assert len(entries) == 8
