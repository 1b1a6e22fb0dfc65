"""Ports that observe: the value of struct weir_port.observes, and how it is changed without an agent."""

from __future__ import annotations

from openflow_ext.switch.dataplane.pinned_maps import PinnedMaps
from openflow_ext.switch.dataplane.port_records import EVERYTHING
from openflow_ext.switch.dataplane.structs import constants

NOTHING, SHARE, ALL = 0, 1 << int(constants.WEIR_FAIR_SHARE), EVERYTHING
"""The port changes packets; it changes none for fair shares; it changes none at all."""


def observed(all_packets: bool, share: bool) -> int:
    """What a port observes. ``share``: as a controller asked."""
    return ALL if all_packets else SHARE if share else NOTHING


def ports_off(maps: PinnedMaps, bridge: int) -> dict[int, bool]:
    """ifindex -> whether the port changes no packet at all, of every port of a bridge."""
    found = {}
    for ifindex, (number, _) in maps.ports().items():
        if number == bridge:
            found[ifindex] = bool(maps.find_port(ifindex)[1].observes == ALL)
    return found


def set_off(maps: PinnedMaps, bridge: int, off: bool) -> None:
    """Let no port of a bridge change a packet, or let all act by their settings again.

    The programs see it with the next packet. An agent that runs writes the same when it learns of it.
    """
    for ifindex in ports_off(maps, bridge):
        key, port = maps.find_port(ifindex)
        port.observes = observed(off, bool(port.observes_share))
        maps.maps["ports"].put(key, port)
