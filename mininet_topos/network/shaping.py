"""Shaped ports: an HTB rate and a FIFO limit, set exactly and read back.

The lab does not use Mininet's TCLink. TCLink puts netem under every limit, ignores rates above 1 Gbit/s and
does not read back what the kernel has set.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from typing import Any

from pyroute2 import IPRoute

from mininet_topos.errors import LabError, Unable

CLASS_1_1 = 0x10001
OFFLOADS_OFF = "tx off tso off gso off gro off"
Qdisc = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """Rate and queue limit of a port. One of ``queue_bytes`` (bfifo) and ``queue_pkts`` (pfifo) is set."""

    rate_bps: int
    queue_bytes: int | None = None
    queue_pkts: int | None = None

    @property
    def rate_mbps(self) -> float:
        """The rate in Mbit/s."""
        return self.rate_bps / 1_000_000

    @property
    def leaf(self) -> tuple[str, int]:
        """The kind of the leaf qdisc, and its limit in the unit of that kind."""
        if self.queue_bytes is not None:
            return "bfifo", self.queue_bytes
        if self.queue_pkts is not None:
            return "pfifo", self.queue_pkts
        raise ValueError("a bottleneck needs queue_bytes or queue_pkts")


@dataclass(frozen=True, slots=True)
class PortQueue:
    """Counters of a shaped port, from its HTB root, which includes its leaf."""

    sent_pkts: int
    sent_bytes: int
    drops: int
    backlog_pkts: int
    backlog_bytes: int


def _tc(*args: str) -> str:
    try:
        done = subprocess.run(("tc", *args), capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise Unable("tc is missing: install iproute2") from None
    if done.returncode:
        raise LabError(f"tc {' '.join(args)}: {done.stderr.strip()}")
    return done.stdout


def shape(ifname: str, bottleneck: Bottleneck) -> None:
    """Give a port an HTB rate and a FIFO limit, and read both back.

    Raises LabError if the kernel has another rate or limit afterwards.
    """
    kind, limit = bottleneck.leaf
    rate = f"{bottleneck.rate_bps}bit"
    if any(qdisc["handle"] == "1:" for qdisc in _qdiscs(ifname)):
        _tc("qdisc", "del", "dev", ifname, "root")
    _tc("qdisc", "add", "dev", ifname, "root", "handle", "1:", "htb", "default", "1")
    _tc(
        *("class", "add", "dev", ifname, "parent", "1:", "classid", "1:1", "htb"),
        *("rate", rate, "ceil", rate, "quantum", "1514"),
    )
    _tc("qdisc", "add", "dev", ifname, "parent", "1:1", "handle", "10:", kind, "limit", str(limit))
    check_shape(ifname, bottleneck)


def change_rate(ifname: str, rate_bps: int) -> None:
    """Give a shaped port another rate; waiting packets stay in its queue. Raises LabError."""
    rate = f"{rate_bps}bit"
    _tc(
        *("class", "change", "dev", ifname, "parent", "1:", "classid", "1:1", "htb"),
        *("rate", rate, "ceil", rate, "quantum", "1514"),
    )


def check_shape(ifname: str, bottleneck: Bottleneck) -> None:
    """Raise LabError if a port does not have the stated rate and limit."""
    kind, limit = bottleneck.leaf
    leaf = _qdisc(ifname, "10:")
    if (leaf["kind"], leaf["options"]["limit"]) != (kind, limit):
        raise LabError(f"{ifname}: the queue is {leaf['kind']} {leaf['options']}, not {kind} limit {limit}")
    rate_bps = _htb_rate_bps(ifname)
    if rate_bps != bottleneck.rate_bps:
        raise LabError(f"{ifname}: the rate is {rate_bps} bit/s, not {bottleneck.rate_bps}")


def _htb_rate_bps(ifname: str) -> int:
    """Return the kernel's rate of class 1:1, over netlink: tc prints no JSON for HTB classes."""
    with IPRoute() as netlink:
        for index in netlink.link_lookup(ifname=ifname):
            for shaper in netlink.get_classes(index):
                if shaper["handle"] == CLASS_1_1:
                    options = shaper.get_attr("TCA_OPTIONS")
                    rate64 = options.get_attr("TCA_HTB_RATE64")
                    return 8 * int(rate64 or options.get_attr("TCA_HTB_PARMS")["rate"])
    raise LabError(f"{ifname} has no HTB class 1:1: another program has removed its shaping")


def _qdiscs(ifname: str) -> list[Qdisc]:
    found: list[Qdisc] = json.loads(_tc("-s", "-j", "qdisc", "show", "dev", ifname))
    return found


def _qdisc(ifname: str, handle: str) -> Qdisc:
    for qdisc in _qdiscs(ifname):
        if qdisc["handle"] == handle:
            return qdisc
    raise LabError(f"{ifname} has no qdisc {handle}: another program has removed its shaping")


def read_queue(ifname: str) -> PortQueue:
    """Return the counters of a shaped port. Raises LabError if its shaping is gone."""
    root = _qdisc(ifname, "1:")
    return PortQueue(root["packets"], root["bytes"], root["drops"], root["qlen"], root["backlog"])
