"""SCCP and SDTCP as published, and SCCP without an addition: real switch, controller and hosts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flowdb.models import DecisionRow, FlowRow
from mininet_topos.network.lab_network import Network, network
from mininet_topos.network.layout import star
from mininet_topos.network.shaping import Bottleneck
from mininet_topos.running.traffic_programs import SINK_PORT
from tests.support.lab.stage import Stage, sockets, stage
from tests.support.waiting import wait_until

WORKERS, LONG_FLOWS = 4, 2
MSS = 1448


@pytest.fixture(scope="module")
def net() -> Iterator[Network]:
    with network(star(WORKERS, LONG_FLOWS, Bottleneck(100_000_000, queue_bytes=150_000))) as built:
        yield built


def least_window(scale: int) -> int:
    """The least window above one segment that a field with this scale can state."""
    return ((MSS >> scale) + 1) << scale


def test_sccp_as_published_clamps_every_ack_to_the_integer_s_share(net: Network, tmp_path: Path) -> None:
    """The BDP of 7,500 bytes divided by six flows is less than one MSS, which is the least window."""
    with stage(net, tmp_path, "sccp-paper") as on:
        on.start()
        wait_until(lambda: on.root_port()["n_i"], "each SYN has counted", (WORKERS + LONG_FLOWS).__eq__)
        for sender in net.senders:
            (long_flow,) = sockets(sender, SINK_PORT)
            assert long_flow.advmss == MSS, "segments are not fitted"
            assert long_flow.snd_wnd == least_window(long_flow.peer_wscale)
            assert long_flow.rwnd_limited > 0
        counters = on.root_port()
        assert counters["clamped"] > 0
        assert counters["unscaled"] == 0


def test_sdtcp_as_published_sets_paths_up_and_slows_the_longest_lived(net: Network, tmp_path: Path) -> None:
    with stage(net, tmp_path, "sdtcp-paper") as on:
        assert "quickack 1" in str(net.root.cmd("ip route show scope link"))
        on.start()
        decisions = wait_until(lambda: choices(on), "the controller chooses a flow")
        flows = {row.id: row for row in on.rows(FlowRow)}
        first = min(decisions, key=lambda row: row.decided_ns)
        candidates = [flows[candidate["flow_id"]].opened_ns for candidate in first.ranking]
        assert candidates == sorted(candidates)
        assert flows[first.flow_id].opened_ns == candidates[0]
    with stage(net, tmp_path / "after", "plain"):
        assert "quickack" not in str(net.root.cmd("ip route show scope link"))


def choices(on: Stage) -> list[DecisionRow]:
    """The decisions of the policy. A flow alone at its port gets its share at once (decision 0112)."""
    known = {row.id for row in on.rows(FlowRow)}
    chosen = [row for row in on.rows(DecisionRow) if row.policy == "longest-lived"]
    return [row for row in chosen if {one["flow_id"] for one in row.ranking} <= known]
