"""What a port can carry: the rate of its HTB or TBF root, else its link's speed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from pyroute2 import IPRoute, NetlinkError

from openflow_ext.switch.errors import SwitchError

_TC_H_ROOT = 0xFFFFFFFF
_OVERFLOWN = 0xFFFFFFFF
"""What TBF tells of a rate over 34 Gbit/s, whose 64-bit attribute pyroute2 does not read."""
_SYSFS = Path("/sys/class/net")


def read_rates(ports: Mapping[int, str]) -> dict[int, int]:
    """The rate in bit/s of each port (ifindex -> name); a port that tells none is left out. Blocks.

    Raises SwitchError.
    """
    rates = {ifindex: speed for ifindex, name in ports.items() if (speed := _link_speed_bps(name))}
    try:
        with IPRoute() as netlink:
            for qdisc in netlink.get_qdiscs():
                ifindex = qdisc["index"]
                if ifindex not in ports or qdisc["parent"] != _TC_H_ROOT:
                    continue
                if rate := _shaped_rate_bps(netlink, ifindex, qdisc):
                    rates[ifindex] = rate
    except (NetlinkError, OSError) as error:
        raise SwitchError(f"the ports' qdiscs cannot be read: {error}") from error
    return rates


def _link_speed_bps(name: str) -> int:
    """The speed that the driver reports; 0 for none. A tap's 10 Mbit/s is no truth and counts as none."""
    device = _SYSFS / name
    try:
        if (device / "tun_flags").exists():
            return 0
        return max(0, int((device / "speed").read_text())) * 1_000_000
    except (OSError, ValueError):
        return 0


def _shaped_rate_bps(netlink: IPRoute, ifindex: int, qdisc: Any) -> int:
    options = qdisc.get_attr("TCA_OPTIONS")
    match qdisc.get_attr("TCA_KIND"):
        case "tbf":
            return _rate_bps(options, "TCA_TBF_PARMS")
        case "htb":
            classes = list(netlink.get_classes(index=ifindex))
            default = options.get_attr("TCA_HTB_INIT")["defcls"]
            return htb_rate_bps(classes, qdisc["handle"], default)
    return 0


def htb_rate_bps(classes: Collection[Any], qdisc_handle: int, default_minor: int) -> int:
    """The rate of the root class above the default class; 0 where unclassified packets pass unshaped."""
    by_handle = {one["handle"]: one for one in classes}
    found = by_handle.get(qdisc_handle | default_minor)
    while found is not None and found["parent"] in by_handle:
        found = by_handle[found["parent"]]
    return _rate_bps(found.get_attr("TCA_OPTIONS"), "TCA_HTB_PARMS") if found else 0


def _rate_bps(options: Any, parameters: str) -> int:
    if options is None:
        return 0
    rate = options.get_attr("TCA_HTB_RATE64") or options.get_attr(parameters)["rate"]
    return 0 if rate == _OVERFLOWN else int(rate) * 8
