"""The rate and the queue size of a port, from its qdiscs as netlink reports them."""

from __future__ import annotations

import contextlib
import struct

import pytest

from openflow_ext.switch.dataplane.interface import NoShare
from openflow_ext.switch.dataplane.netlink import Netlink, TcObject
from openflow_ext.switch.ovs import egress

ROOT = 0xFFFFFFFF
HANDLE = 0x50000
OVERFLOWN = 0xFFFFFFFF


def attribute(kind: int, content: bytes) -> bytes:
    """A netlink attribute with its padding."""
    return struct.pack("=HH", 4 + len(content), kind) + content + bytes(-len(content) % 4)


def ratespec(rate_bytes: int) -> bytes:
    """struct tc_ratespec."""
    return struct.pack("=BBHhHI", 0, 1, 0, 0, 0, rate_bytes)


def qdisc(kind: str, handle: int, parent: int, options: bytes = b"") -> TcObject:
    return TcObject(7, handle, parent, kind, options)


def htb_class(minor: int, parent: int, rate_bytes: int, rate64: int = 0) -> TcObject:
    options = attribute(1, ratespec(rate_bytes) + bytes(32))
    if rate64:
        options += attribute(6, struct.pack("=Q", rate64))
    return TcObject(7, HANDLE | minor, parent, "htb", options)


def htb(default_minor: int) -> TcObject:
    return qdisc("htb", HANDLE, ROOT, attribute(2, struct.pack("=IIIII", 3, 10, default_minor, 0, 0)))


def tbf(rate_bytes: int, limit: int, rate64: int = 0) -> TcObject:
    options = attribute(1, ratespec(rate_bytes) + ratespec(0) + struct.pack("=III", limit, 1600, 0))
    if rate64:
        options += attribute(4, struct.pack("=Q", rate64))
    return qdisc("tbf", HANDLE, ROOT, options)


def limit(number: int) -> bytes:
    """struct tc_fifo_qopt."""
    return struct.pack("=I", number)


def test_the_rate_of_a_port_is_that_of_its_default_class() -> None:
    classes = [htb_class(1, ROOT, 12_500_000), htb_class(2, ROOT, 1000)]
    assert egress.shaped_rate_bps(htb(1), classes) == 100_000_000


def test_a_root_class_above_the_default_class_sets_the_rate() -> None:
    classes = [htb_class(1, ROOT, 12_500_000), htb_class(10, HANDLE | 1, 5), htb_class(20, HANDLE | 10, 4)]
    assert egress.shaped_rate_bps(htb(20), classes) == 100_000_000


def test_rates_above_34_gbit_are_read_from_the_64_bit_attribute() -> None:
    classes = [htb_class(1, ROOT, OVERFLOWN, rate64=12_500_000_000)]
    assert egress.shaped_rate_bps(htb(1), classes) == 100_000_000_000
    assert egress.shaped_rate_bps(tbf(OVERFLOWN, 1, rate64=12_500_000_000), []) == 100_000_000_000
    assert egress.shaped_rate_bps(htb(1), [htb_class(1, ROOT, OVERFLOWN)]) == 0


def test_without_a_default_class_packets_pass_unshaped() -> None:
    assert egress.shaped_rate_bps(htb(0), [htb_class(1, ROOT, 12_500_000)]) == 0


def test_tbf_shapes_and_other_qdiscs_do_not() -> None:
    assert egress.shaped_rate_bps(tbf(12_500_000, 9000), []) == 100_000_000
    assert egress.shaped_rate_bps(qdisc("bfifo", HANDLE, ROOT, limit(9)), []) == 0


def test_a_device_that_does_not_exist_has_no_speed() -> None:
    unknown = egress.Egress(lacks=NoShare.CAPACITY)
    with contextlib.closing(Netlink()) as netlink:
        for count in (1, 100):
            names = {999_000 + number: "no-such-device" for number in range(count)}
            assert egress.read_egresses(netlink, names) == dict.fromkeys(names, unknown)


@pytest.mark.parametrize(
    ("root", "leaf", "expected"),
    [
        (htb(1), qdisc("bfifo", 0x100000, HANDLE | 1, limit(150_000)), 150_000),
        (htb(1), qdisc("pfifo", 0x100000, HANDLE | 1, limit(100)), 100 * 1514),
        (htb(1), None, 0),
        (htb(1), qdisc("fq_codel", 0x100000, HANDLE | 1, attribute(1, bytes(4))), 0),
        (tbf(12_500_000, 90_000), None, 90_000),
        (qdisc("bfifo", HANDLE, ROOT, limit(150_000)), None, 150_000),
        (qdisc("noqueue", 0, ROOT), None, 0),
        (qdisc("bfifo", HANDLE, ROOT, b"\1\2"), None, 0),
    ],
)
def test_the_size_of_a_queue_is_the_limit_of_its_qdisc(
    root: TcObject, leaf: TcObject | None, expected: int
) -> None:
    assert egress.buffer_bytes(root, leaf) == expected
