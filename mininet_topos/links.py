"""Links as they are stated: HTB rate and a FIFO's limit set exactly and read back; offloads off.

Mininet's TCLink is not used: it puts netem under every limit, ignores rates above 1 Gbit/s and never
looks at what the kernel made of them.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass

from pyroute2 import IPRoute

from mininet_topos.errors import LabError, Unable

CLASS_1_1 = 0x10001
OFFLOADS_OFF = "tx off tso off gso off gro off"


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """A port's shaping. Exactly one of ``queue_bytes`` (bfifo) and ``queue_pkts`` (pfifo) is set."""

    rate_bps: int
    queue_bytes: int | None = None
    queue_pkts: int | None = None

    @property
    def leaf(self) -> tuple[str, int]:
        """The leaf's kind and its limit, in its own unit."""
        if self.queue_bytes is not None:
            return "bfifo", self.queue_bytes
        if self.queue_pkts is not None:
            return "pfifo", self.queue_pkts
        raise ValueError("a bottleneck needs queue_bytes or queue_pkts")


@dataclass(frozen=True, slots=True)
class PortQueue:
    """Counters of a shaped port: of its HTB root (which counts its leaf too)."""

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
    """Put HTB at the stated rate with a FIFO of the stated limit on a port, then read both back.

    Raises LabError where the kernel's rate or limit is not the one stated.
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


def check_shape(ifname: str, bottleneck: Bottleneck) -> None:
    """Raises LabError where a port's rate or limit is not the one stated."""
    kind, limit = bottleneck.leaf
    leaf = _qdisc(ifname, "10:")
    if (leaf["kind"], leaf["options"]["limit"]) != (kind, limit):
        raise LabError(f"{ifname}: the queue is {leaf['kind']} {leaf['options']}, not {kind} limit {limit}")
    rate_bps = _htb_rate_bps(ifname)
    if rate_bps != bottleneck.rate_bps:
        raise LabError(f"{ifname}: the rate is {rate_bps} bit/s, not {bottleneck.rate_bps}")


def _htb_rate_bps(ifname: str) -> int:
    """The rate of class 1:1 as the kernel has it (tc prints no JSON for HTB classes, so netlink is asked)."""
    with IPRoute() as netlink:
        for index in netlink.link_lookup(ifname=ifname):
            for shaper in netlink.get_classes(index):
                if shaper["handle"] == CLASS_1_1:
                    options = shaper.get_attr("TCA_OPTIONS")
                    wide = options.get_attr("TCA_HTB_RATE64")
                    return 8 * (wide or options.get_attr("TCA_HTB_PARMS")["rate"])
    raise LabError(f"{ifname} has no HTB class 1:1: something took its shaping off")


def _qdiscs(ifname: str) -> list[dict]:
    return json.loads(_tc("-s", "-j", "qdisc", "show", "dev", ifname))


def _qdisc(ifname: str, handle: str) -> dict:
    for qdisc in _qdiscs(ifname):
        if qdisc["handle"] == handle:
            return qdisc
    raise LabError(f"{ifname} has no qdisc {handle}: something took its shaping off")


def read_queue(ifname: str) -> PortQueue:
    """The counters of a shaped port. Raises LabError where its shaping is gone."""
    root = _qdisc(ifname, "1:")
    return PortQueue(root["packets"], root["bytes"], root["drops"], root["qlen"], root["backlog"])
