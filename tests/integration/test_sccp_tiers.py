"""SCCP on two tiers: a sender's window is the share of the narrowest port on its path."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mininet_topos.network.lab_network import Network, network
from mininet_topos.network.layout import lay_out
from mininet_topos.network.shaping import Bottleneck, shape
from mininet_topos.running.traffic_programs import SINK_PORT
from tests.support.lab.stage import Stage, sockets, stage
from tests.support.waiting import wait_until

COMMON_RTT_US = 20_000
NARROW = Bottleneck(20_000_000, queue_bytes=150_000)
WIDE = Bottleneck(60_000_000, queue_bytes=150_000)
FLOWS = 2
TOR, AGGREGATION = ("tor1", "h1"), ("agg1", "tor1")
"""A switch and the neighbour of its port: both ports are on the path from the other rack to the root."""


@pytest.fixture(scope="module")
def net() -> Iterator[Network]:
    layout = lay_out("threetier,1,2,3", 1, 1, {})
    other_rack = [host for host in layout.topo.hosts() if layout.switch_of(host) == "tor2"]
    ports = [layout.port(*TOR), layout.port(*AGGREGATION)]
    senders = tuple(other_rack[:FLOWS])
    with network(replace(layout, senders=senders, shapes=dict.fromkeys(ports, WIDE))) as built:
        yield built


@pytest.mark.parametrize("narrow", [TOR, AGGREGATION], ids=["tor", "aggregation"])
def test_the_sender_s_window_is_the_share_of_the_narrower_port(
    net: Network, tmp_path: Path, narrow: tuple[str, str]
) -> None:
    for place in (TOR, AGGREGATION):
        shape(net.ifname(net.layout.port(*place)), NARROW if place == narrow else WIDE)
    with stage(
        net, tmp_path, "sccp", {"sccp": {"common_rtt": "fixed", "common_rtt_us": COMMON_RTT_US}}
    ) as on:
        for sender in net.senders:
            on.start_long_flow(sender)
        on.traffic.await_event("connected", FLOWS, 30)
        shares = wait_until(lambda: shares_of_all(on), "both ports count both flows")
        wanted = NARROW.rate_bps * COMMON_RTT_US // 8_000_000 // FLOWS
        assert shares[narrow] == wanted
        assert shares[AGGREGATION if narrow == TOR else TOR] == 3 * wanted
        for sender in net.senders:
            wait_until(lambda host=sender: holds(host, wanted), f"{sender.name}'s window is the share")


def shares_of_all(on: Stage) -> dict[tuple[str, str], int] | None:
    """The fair share, in bytes, at each of the two ports; None while one of them counts other than FLOWS."""
    found = {}
    for place in (TOR, AGGREGATION):
        ifname = on.net.ifname(on.net.layout.port(*place))
        (port,) = [port for port in on.running.ports() if port["name"] == ifname]
        if port["n_i"] != FLOWS:
            return None
        found[place] = port["fair_share_bytes"]
    return found


def holds(host: object, share_bytes: int) -> bool:
    """Whether a sender's window holds the share in whole segments, and at most one segment more."""
    (sender,) = sockets(host, SINK_PORT)  # type: ignore[arg-type]
    return share_bytes < sender.snd_wnd < share_bytes + 2 * sender.advmss
