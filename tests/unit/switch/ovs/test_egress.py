"""The rate and the queue size of a port, from its qdiscs as netlink reports them."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from pyroute2.netlink.rtnl.tcmsg import tcmsg

from openflow_ext.switch.dataplane.interface import NoShare
from openflow_ext.switch.ovs import egress

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


def test_the_rate_of_a_port_is_that_of_its_default_class() -> None:
    classes = [htb_class(1, ROOT, 12_500_000), htb_class(2, ROOT, 1000)]
    assert egress.htb_rate_bps(classes, HANDLE, 1) == 100_000_000


def test_a_root_class_above_the_default_class_sets_the_rate() -> None:
    classes = [htb_class(1, ROOT, 12_500_000), htb_class(10, HANDLE | 1, 5), htb_class(20, HANDLE | 10, 4)]
    assert egress.htb_rate_bps(classes, HANDLE, 20) == 100_000_000


def test_rates_above_34_gbit_are_read_from_the_64_bit_attribute() -> None:
    classes = [htb_class(1, ROOT, 0xFFFFFFFF, rate64=12_500_000_000)]
    assert egress.htb_rate_bps(classes, HANDLE, 1) == 100_000_000_000
    assert egress.htb_rate_bps([htb_class(1, ROOT, 0xFFFFFFFF)], HANDLE, 1) == 0


def test_without_a_default_class_packets_pass_unshaped() -> None:
    assert egress.htb_rate_bps([htb_class(1, ROOT, 12_500_000)], HANDLE, 0) == 0


def test_a_device_that_does_not_exist_has_no_speed() -> None:
    unknown = egress.Egress(lacks=NoShare.CAPACITY)
    assert egress.read_egresses({999_999: "no-such-device"}) == {999_999: unknown}


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
def test_the_size_of_a_queue_is_the_limit_of_its_qdisc(root: Any, leaves: list[Any], expected: int) -> None:
    assert egress.buffer_bytes([root, *leaves], root) == expected
