"""A host with many connections beside a host with one: real switch, controller and hosts."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mininet_topos.network.lab_network import Network, network
from mininet_topos.network.layout import star
from mininet_topos.network.shaping import Bottleneck
from openflow_ext.switch.dataplane.pinned_maps import PinnedMaps
from tests.support.lab.stage import Stage, stage
from tests.support.waiting import DEADLINE_S

CONNECTIONS = 10
SETTLE_S, MEASURED_S = 1.5, 3.0


@pytest.fixture(scope="module")
def net() -> Iterator[Network]:
    with network(star(1, 2, Bottleneck(100_000_000, queue_bytes=150_000))) as built:
        yield built


def sent_bytes(on: Stage) -> dict[str, int]:
    """What the flows of each sender have sent through the port to the root, by the sender's address."""
    ifindex = socket.if_nametoindex(on.root_ifname)
    with contextlib.closing(PinnedMaps(on.running.dataplane)) as maps:
        found = {host.IP(): 0 for host in on.net.senders}
        for flow in maps.flows():
            if flow.ifindex == ifindex and flow.remote in found:
                found[flow.remote] += flow.sent_bytes
    return found


def lone_part(net: Network, folder: Path, share_by: str) -> float:
    """The part of the link that a host with one connection has beside a host with many."""
    lone, greedy = net.senders
    with stage(net, folder, "sccp-auto", {"sccp": {"common_rtt": "auto", "share_by": share_by}}) as on:
        for sender in [lone, *[greedy] * CONNECTIONS]:
            on.start_long_flow(sender)
        on.traffic.await_event("connected", 1 + CONNECTIONS, DEADLINE_S)
        time.sleep(SETTLE_S)
        before = sent_bytes(on)
        time.sleep(MEASURED_S)
        after = sent_bytes(on)
    sent = {address: after[address] - before[address] for address in after}
    return sent[lone.IP()] / sum(sent.values())


def test_a_host_gains_no_share_by_more_connections_if_a_port_shares_by_host(
    net: Network, tmp_path: Path
) -> None:
    by_flow, by_host = (lone_part(net, tmp_path / how, how) for how in ("flow", "host"))
    assert by_flow == pytest.approx(1 / (1 + CONNECTIONS), abs=0.05)
    assert by_host == pytest.approx(1 / 2, abs=0.1)
