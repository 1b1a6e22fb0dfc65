"""Ports that are off, read and changed in the maps: this works without an agent."""

from __future__ import annotations

from openflow_ext.switch.dataplane.pinned_maps import PinnedMaps
from openflow_ext.switch.dataplane.port_records import OBSERVE_ALL, observed


def ports_off(maps: PinnedMaps, bridge: int) -> dict[int, bool]:
    """ifindex -> whether the port changes no packet at all, of every port of a bridge."""
    mine = [ifindex for ifindex, (number, _) in maps.ports().items() if number == bridge]
    return {ifindex: bool(maps.find_port(ifindex)[1].observes == OBSERVE_ALL) for ifindex in mine}


def set_off(maps: PinnedMaps, bridge: int, off: bool) -> None:
    """Let no port of a bridge change a packet, or let all act by their settings again.

    The programs see it with the next packet. An agent that runs writes the same when it learns of it.
    """
    for ifindex in ports_off(maps, bridge):
        key, port = maps.find_port(ifindex)
        port.observes = observed(off, bool(port.observes_share))
        maps.maps["ports"].put(key, port)
