"""SCCP on two tiers: a sender's window is the share of the narrowest port on the way, wherever that is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mininet_topos.layout import lay_out
from mininet_topos.links import Bottleneck, shape
from mininet_topos.net import Network, network
from mininet_topos.traffic import SINK_PORT
from tests.integration.stage import Stage, sockets, stage
from tests.integration.switch_bench import until

COMMON_RTT_US = 20_000
NARROW = Bottleneck(20_000_000, queue_bytes=150_000)
WIDE = Bottleneck(60_000_000, queue_bytes=150_000)
FLOWS = 2
TOR, AGGREGATION = ("tor1", "h1"), ("agg1", "tor1")
"""A switch and whom its port leads to: both are on the way from the other rack to the root."""


@pytest.fixture(scope="module")
def net() -> Iterator[Network]:
    layout = lay_out("threetier,1,2,3", 1, 1, {})
    other_rack = [host for host in layout.topo.hosts() if layout.switch_of(host) == "tor2"]
    ports = [layout.port(*TOR), layout.port(*AGGREGATION)]
    senders = tuple(other_rack[:FLOWS])
    with network(replace(layout, senders=senders, shapes=dict.fromkeys(ports, WIDE))) as built:
        yield built


@pytest.mark.parametrize("narrow", [TOR, AGGREGATION], ids=["tor", "aggregation"])
def test_the_narrower_port_s_share_is_in_the_sender_s_window(
    net: Network, tmp_path: Path, narrow: tuple[str, str]
) -> None:
    for place in (TOR, AGGREGATION):
        shape(net.ifname(net.layout.port(*place)), NARROW if place == narrow else WIDE)
    with stage(net, tmp_path, "sccp", {"sccp": {"common_rtt_us": COMMON_RTT_US}}) as on:
        for sender in net.senders:
            on.start_long_flow(sender)
        on.traffic.await_event("connected", FLOWS, 30)
        shares = until(lambda: shares_of_all(on), "both ports count both flows")
        wanted = NARROW.rate_bps * COMMON_RTT_US // 8_000_000 // FLOWS
        assert shares[narrow] == wanted
        assert shares[AGGREGATION if narrow == TOR else TOR] == 3 * wanted
        for sender in net.senders:
            until(lambda host=sender: holds(host, wanted), f"{sender.name}'s window is the share")


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
    """Whether a sender believes in a window of whole segments that holds the share, and one more."""
    (sender,) = sockets(host, SINK_PORT)  # type: ignore[arg-type]
    return share_bytes < sender.snd_wnd < share_bytes + 2 * sender.advmss
