"""The rate and the queue size of a port: from its HTB or TBF root qdisc, else from its link's speed."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyroute2 import IPRoute, NetlinkError

from openflow_ext.switch.dataplane.interface import NoShare
from openflow_ext.switch.errors import SwitchError

_TC_H_ROOT = 0xFFFFFFFF
_OVERFLOWN = 0xFFFFFFFF
"""TBF's 32-bit rate if the rate exceeds 34 Gbit/s. pyroute2 does not read the 64-bit attribute."""
_SYSFS = Path("/sys/class/net")
_FRAME_BYTES = 1514
"""The bytes counted for each packet of a queue that is limited in packets."""
DEFAULT_RATE_BPS = 10_000_000_000
"""The rate of a port whose qdisc and link state none. Open vSwitch reports this rate for a veth too."""


@dataclass(frozen=True, slots=True)
class Egress:
    """A port's rate in bit/s, its queue size in bytes (0: unknown), and why it can set no fair share."""

    rate_bps: int = DEFAULT_RATE_BPS
    buffer_bytes: int = 0
    lacks: NoShare = NoShare.NONE


def read_egresses(ports: Mapping[int, str]) -> dict[int, Egress]:
    """The egress of each port (ifindex -> name). Blocks. Raises SwitchError."""
    qdiscs: dict[int, list[Any]] = {ifindex: [] for ifindex in ports}
    try:
        with IPRoute() as netlink:
            for qdisc in netlink.get_qdiscs():
                if qdisc["index"] in qdiscs:
                    qdiscs[qdisc["index"]].append(qdisc)
            return {ifindex: _egress(netlink, name, qdiscs[ifindex]) for ifindex, name in ports.items()}
    except (NetlinkError, OSError) as error:
        raise SwitchError(f"the qdiscs of the ports cannot be read: {error}") from error


def _egress(netlink: IPRoute, name: str, qdiscs: Collection[Any]) -> Egress:
    root = next((qdisc for qdisc in qdiscs if qdisc["parent"] == _TC_H_ROOT), None)
    rate_bps = (_shaped_rate_bps(netlink, root) if root else 0) or _link_speed_bps(name)
    lacks = NoShare.NONE if rate_bps else NoShare.CAPACITY
    if root and root.get_attr("TCA_KIND") == "noqueue":
        lacks |= NoShare.QUEUE
    return Egress(rate_bps or DEFAULT_RATE_BPS, buffer_bytes(qdiscs, root) if root else 0, lacks)


def _link_speed_bps(name: str) -> int:
    """The speed that the driver reports; 0 if it reports none. The 10 Mbit/s of every tap are ignored."""
    device = _SYSFS / name
    try:
        if (device / "tun_flags").exists():
            return 0
        return max(0, int((device / "speed").read_text())) * 1_000_000
    except (OSError, ValueError):
        return 0


def _shaped_rate_bps(netlink: IPRoute, qdisc: Any) -> int:
    options = qdisc.get_attr("TCA_OPTIONS")
    match qdisc.get_attr("TCA_KIND"):
        case "tbf":
            return _rate_bps(options, "TCA_TBF_PARMS")
        case "htb":
            classes = list(netlink.get_classes(index=qdisc["index"]))
            default = options.get_attr("TCA_HTB_INIT")["defcls"]
            return htb_rate_bps(classes, qdisc["handle"], default)
    return 0


def htb_rate_bps(classes: Collection[Any], qdisc_handle: int, default_minor: int) -> int:
    """The rate of the root class above the default class. 0 if unclassified packets are not shaped."""
    by_handle = {one["handle"]: one for one in classes}
    found = by_handle.get(qdisc_handle | default_minor)
    while found is not None and found["parent"] in by_handle:
        found = by_handle[found["parent"]]
    return _rate_bps(found.get_attr("TCA_OPTIONS"), "TCA_HTB_PARMS") if found else 0


def buffer_bytes(qdiscs: Collection[Any], root: Any) -> int:
    """The size in bytes of a port's queue: TBF's limit, or that of the FIFO (HTB: of the default class).

    0 for all other qdiscs. A qdisc that manages its queue, such as fq_codel, has no single limit in bytes.
    """
    options = root.get_attr("TCA_OPTIONS")
    match root.get_attr("TCA_KIND"):
        case "tbf":
            return int(options.get_attr("TCA_TBF_PARMS")["limit"])
        case "htb":
            leaf = root["handle"] | options.get_attr("TCA_HTB_INIT")["defcls"]
            return sum(_fifo_bytes(one) for one in qdiscs if one["parent"] == leaf)
    return _fifo_bytes(root)


def _fifo_bytes(qdisc: Any) -> int:
    """The limit of a pfifo or bfifo. pyroute2 leaves the options of a bfifo (tc_fifo_qopt) in hexadecimal."""
    options = qdisc.get_attr("TCA_OPTIONS")
    match qdisc.get_attr("TCA_KIND"):
        case "pfifo":
            return _FRAME_BYTES * int(options["limit"])
        case "bfifo":
            return int.from_bytes(bytes.fromhex(options.replace(":", ""))[:4], sys.byteorder)
    return 0


def _rate_bps(options: Any, parameters: str) -> int:
    if options is None:
        return 0
    rate = options.get_attr("TCA_HTB_RATE64") or options.get_attr(parameters)["rate"]
    return 0 if rate == _OVERFLOWN else int(rate) * 8
