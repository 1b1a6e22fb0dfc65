"""Netlink messages and attributes, and requests that need no rights."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from openflow_ext.switch.dataplane.netlink import (
    CLSACT,
    GET_QDISC,
    HEADER,
    ROOT,
    TC,
    Netlink,
    TcObject,
    attributes,
    messages,
    tc_object,
)

LO = socket.if_nametoindex("lo")


@pytest.fixture
def netlink() -> Iterator[Netlink]:
    with contextlib.closing(Netlink()) as opened:
        yield opened


def attribute(kind: int, content: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(content), kind) + content + bytes(-len(content) % 4)


def message(kind: int, body: bytes, sender: int = 0) -> bytes:
    data = HEADER.pack(HEADER.size + len(body), kind, 0, 5, sender) + body
    return data + bytes(-len(data) % 4)


def test_a_datagram_is_divided_into_messages_by_their_lengths() -> None:
    data = message(36, b"12345", sender=9) + message(37, b"")
    assert list(messages(data)) == [(36, 5, 9, b"12345"), (37, 5, 0, b"")]
    assert list(messages(data[:10])) == []
    assert list(messages(bytes(16))) == [], "a length of 0 does not loop"


def test_attributes_have_padding_and_flags_in_their_types() -> None:
    data = attribute(1, b"htb\0") + attribute(2 | 0x8000, b"abcde") + attribute(3, b"")
    assert attributes(data) == {1: b"htb\0", 2: b"abcde", 3: b""}
    assert attributes(bytes(8)) == {}


def test_a_qdisc_has_the_drops_and_the_queue_of_its_statistics() -> None:
    queue = attribute(7, attribute(3, struct.pack("=IIIII", 4, 6000, 17, 0, 0)))
    body = TC.pack(0, 7, 0x10000, ROOT, 0) + attribute(1, b"bfifo\0") + attribute(2, b"\1\0\0\0") + queue
    assert tc_object(body) == TcObject(7, 0x10000, ROOT, "bfifo", b"\1\0\0\0", 17, 4, 6000)
    bare = tc_object(body[: -len(queue)])
    assert (bare.drops, bare.queue_pkts, bare.queue_bytes) == (0, 0, 0)


def test_one_request_returns_what_a_dump_has(netlink: Netlink) -> None:
    root = netlink.qdisc(LO)
    assert root is not None
    assert root in netlink.qdiscs()


@pytest.mark.parametrize(
    ("interfaces", "dumps"),
    [([{1, 2}, {1, 2, 3}], 1), ([{1, 2}, {1, 3}, {1, 3}, {1, 3}], 2), ([{1, 2}, {1}] * 9, 5)],
    ids=["one was added", "one has gone", "they come and go"],
)
def test_a_dump_during_which_an_interface_went_is_repeated(
    netlink: Netlink, monkeypatch: pytest.MonkeyPatch, interfaces: list[set[int]], dumps: int
) -> None:
    lists, asked = iter(interfaces), list[int]()
    call = netlink._call

    def counted(kind: int, *rest: Any) -> Iterator[bytes]:
        asked.append(kind)
        return call(kind, *rest)

    monkeypatch.setattr(netlink, "_call", counted)
    monkeypatch.setattr(socket, "if_nameindex", lambda: [(ifindex, "") for ifindex in next(lists)])
    assert LO in {one.ifindex for one in netlink.qdiscs()}
    assert asked == [GET_QDISC] * dumps


def test_what_does_not_exist_is_none(netlink: Netlink) -> None:
    assert netlink.qdisc(LO, CLSACT) is None
    assert netlink.qdisc(999_999) is None
    assert netlink.classes(999_999) == []
    with pytest.raises(OSError, match=os.strerror(errno.ENODEV)):
        netlink.xdp(999_999)


def test_an_interface_without_programs_has_none(netlink: Netlink) -> None:
    assert netlink.xdp(LO) == {}
    assert netlink.qdisc(LO) is not None, "the rest of the answer before does not disturb"
