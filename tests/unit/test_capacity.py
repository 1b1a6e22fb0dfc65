"""The rate of a port from what netlink tells of its qdisc."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from pyroute2.netlink.rtnl.tcmsg import tcmsg

from openflow_ext.switch import capacity
from openflow_ext.switch.dataplane import NoShare

ROOT = 0xFFFFFFFF
HANDLE = 0x50000


def htb_class(minor: int, parent: int, rate_bytes: int, rate64: int = 0) -> Any:
    message = tcmsg()
    message["handle"], message["parent"] = HANDLE | minor, parent
    attrs: list[tuple[str, Any]] = [("TCA_HTB_PARMS", {"rate": rate_bytes})]
    if rate64:
        attrs.append(("TCA_HTB_RATE64", rate64))
    options = tcmsg()
    options["attrs"] = attrs
    message["attrs"] = [("TCA_KIND", "htb"), ("TCA_OPTIONS", options)]
    return message


def test_the_default_class_is_the_port() -> None:
    classes = [htb_class(1, ROOT, 12_500_000), htb_class(2, ROOT, 1000)]
    assert capacity.htb_rate_bps(classes, HANDLE, 1) == 100_000_000


def test_the_root_above_the_default_class_is_the_port() -> None:
    classes = [htb_class(1, ROOT, 12_500_000), htb_class(10, HANDLE | 1, 5), htb_class(20, HANDLE | 10, 4)]
    assert capacity.htb_rate_bps(classes, HANDLE, 20) == 100_000_000


def test_rates_over_34_gbit() -> None:
    classes = [htb_class(1, ROOT, 0xFFFFFFFF, rate64=12_500_000_000)]
    assert capacity.htb_rate_bps(classes, HANDLE, 1) == 100_000_000_000
    assert capacity.htb_rate_bps([htb_class(1, ROOT, 0xFFFFFFFF)], HANDLE, 1) == 0


def test_without_a_default_class_packets_pass_unshaped() -> None:
    assert capacity.htb_rate_bps([htb_class(1, ROOT, 12_500_000)], HANDLE, 0) == 0


def test_a_device_that_is_none_has_no_rate() -> None:
    unknown = capacity.Egress(lacks=NoShare.CAPACITY)
    assert capacity.read_egresses({999_999: "no-such-device"}) == {999_999: unknown}


def qdisc(kind: str, handle: int, parent: int, options: Any) -> Any:
    message = tcmsg()
    message["handle"], message["parent"] = handle, parent
    message["attrs"] = [("TCA_KIND", kind), ("TCA_OPTIONS", options)]
    return message


def attributes(**attrs: Any) -> Any:
    options = tcmsg()
    options["attrs"] = list(attrs.items())
    return options


HTB = qdisc("htb", HANDLE, ROOT, attributes(TCA_HTB_INIT={"defcls": 1}))
LIMIT_150_000 = (150_000).to_bytes(4, sys.byteorder).hex(":")


@pytest.mark.parametrize(
    ("root", "leaves", "expected"),
    [
        (HTB, [qdisc("bfifo", 0x100000, HANDLE | 1, LIMIT_150_000)], 150_000),
        (HTB, [qdisc("pfifo", 0x100000, HANDLE | 1, {"limit": 100})], 100 * 1514),
        (HTB, [qdisc("bfifo", 0x100000, HANDLE | 2, LIMIT_150_000)], 0),
        (HTB, [qdisc("fq_codel", 0x100000, HANDLE | 1, attributes())], 0),
        (qdisc("tbf", HANDLE, ROOT, attributes(TCA_TBF_PARMS={"limit": 90_000})), [], 90_000),
        (qdisc("bfifo", HANDLE, ROOT, LIMIT_150_000), [], 150_000),
        (qdisc("noqueue", 0, ROOT, None), [], 0),
    ],
)
def test_what_a_queue_holds(root: Any, leaves: list[Any], expected: int) -> None:
    assert capacity.buffer_bytes([root, *leaves], root) == expected
