"""The bottlenecks towards hosts: what senders with Adaptive Pacing need of them.

The bottleneck of a flow is taken to be the port to which its receiver is attached, where many flows to one
host meet. Not implemented: ports between switches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, or_, select, tuple_
from sqlalchemy.orm import Session

from flowdb.flow import NS_PER_S
from flowdb.models import HostRow, PortRow, SwitchRow
from webui.queries.names import dpid_text
from webui.queries.ports import counters_of, observes, with_newest_sample
from webui.views import Bottleneck, PortName


def bottlenecks(session: Session, addresses: Sequence[str], now_ns: int) -> list[Bottleneck]:
    """The bottleneck towards each of the addresses, in their order.

    An address is left out if no host has it, if its switch is not connected, or if its port is down or was
    never sampled.
    """
    places = _places(session, addresses)
    if not places:
        return []
    of_ports = tuple_(PortRow.dpid, PortRow.port_no).in_(sorted(set(places.values())))
    rows = session.execute(
        with_newest_sample()
        .join(SwitchRow, SwitchRow.dpid == PortRow.dpid)
        .where(of_ports, SwitchRow.connected.is_(True), PortRow.up.is_(True))
    )
    found = {(row.dpid, row.port_no): row for row in rows if row.sampled_ns is not None}
    return [
        _bottleneck(address, found[places[address]], now_ns)
        for address in dict.fromkeys(addresses)
        if places.get(address) in found
    ]


def _places(session: Session, addresses: Sequence[str]) -> dict[str, tuple[int, int]]:
    """The ports to which the hosts with these addresses are attached; of two hosts, the newer one counts."""
    has_address = or_(HostRow.ipv4.in_(addresses), HostRow.ipv6.in_(addresses))
    hosts = select(HostRow.ipv4, HostRow.ipv6, HostRow.dpid, HostRow.port_no).where(has_address)
    return {
        address: (row.dpid, row.port_no)
        for row in session.execute(hosts.order_by(HostRow.last_seen_ns))
        for address in (row.ipv4, row.ipv6)
        if address is not None
    }


def _bottleneck(address: str, row: Row[Any], now_ns: int) -> Bottleneck:
    counters = counters_of(row)
    shares = bool(counters["fair_share_bytes"]) and not observes(row)
    return Bottleneck(
        to=address,
        port=PortName(dpid=dpid_text(row.dpid), port_no=row.port_no, name=row.name),
        age_s=max(now_ns - row.sampled_ns, 0) / NS_PER_S,
        n_i=counters["n_i"],
        capacity_bps=counters["capacity_bps"],
        buffer_bytes=counters.get("buffer_bytes", 0),
        allowance_bytes=counters.get("allowance_bytes", 0) if shares else 0,
    )
