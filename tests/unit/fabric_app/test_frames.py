"""Frames: the parsed content, and hostile bytes, which raise nothing except MalformedFrame."""

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_app.frames import (
    Arp,
    Frame,
    Lease,
    MalformedFrame,
    Neighbour,
    Segment,
    arp_reply,
    neighbour_advertisement,
    parse,
)
from flowdb.flow import FiveTuple
from tests.support.openflow.scripted_switch import (
    SYN,
    arp,
    dhcp_ack,
    ethernet,
    handshake,
    mac,
    segment,
    solicitation,
    syn_options,
)


def ipv6(src, dst, following, payload):
    head = struct.pack("!IHBB", 6 << 28, len(payload), following, 64)
    return ethernet(mac(1), mac(2), 0x86DD, head + bytes.fromhex(src) + bytes.fromhex(dst) + payload)


LINK_LOCAL, OTHER = "fe80" + "00" * 13 + "01", "fe80" + "00" * 13 + "02"


def test_a_syn_with_its_options():
    frame = parse(handshake(1, 3)[0])
    assert frame.src_mac == mac(1)
    assert frame.content == Segment(FiveTuple("10.0.0.1", "10.0.0.3", 1000, 80), SYN, 100, 0, 1460, 9)


def test_under_a_vlan_tag():
    plain = handshake(1, 3)[0]
    tagged = plain[:12] + b"\x81\x00\x00\x05" + plain[12:]
    assert parse(tagged) == parse(plain)


def test_over_ipv6():
    tcp = struct.pack("!HHIIBBHHH", 7, 80, 1, 0, 5 << 4, SYN, 100, 0, 0)
    content = parse(ipv6(LINK_LOCAL, OTHER, 6, tcp)).content
    assert content == Segment(FiveTuple("fe80::1", "fe80::2", 7, 80), SYN, 1, 0)


def test_arp_and_its_answer():
    assert parse(arp(1, 1, 3)).content == Arp(1, mac(1), "10.0.0.1", "10.0.0.3")
    answer = arp_reply(mac(3), "10.0.0.3", mac(1), "10.0.0.1")
    assert parse(answer) == Frame(mac(3), mac(1), Arp(2, mac(3), "10.0.0.3", "10.0.0.1"))
    assert len(answer) == 60


def test_neighbour_solicitation():
    target = bytes.fromhex(OTHER)
    assert parse(ipv6(LINK_LOCAL, OTHER, 58, b"\x87" + bytes(7) + target)).content == Neighbour(
        135, "fe80::1", "fe80::2"
    )
    assert parse(ipv6("00" * 16, OTHER, 58, b"\x87" + bytes(23))).content == Neighbour(135, None, "::")
    assert parse(ipv6(LINK_LOCAL, OTHER, 58, b"\x80" + bytes(23))).content is None


@pytest.mark.parametrize(
    "frame",
    [
        ethernet(mac(1), mac(2), 0x0800, struct.pack("!BBHHHBBH12xI", 0x45, 0, 24, 0, 0, 64, 17, 0, 9)),
        ethernet(mac(1), mac(2), 0x0800, struct.pack("!BBHHHBBH8x", 0x45, 0, 20, 0, 99, 64, 6, 0)),
    ],
    ids=["UDP", "later fragment"],
)
def test_frames_without_content(frame):
    assert parse(frame).content is None


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (syn_options(9000, 20), (9000, 14)),
        (syn_options(1460, None), (1460, None)),
        (b"\1\1\1\1", (None, None)),
        (b"\0\3\3\7", (None, None)),
    ],
    ids=["scale over 14", "no scale", "nothing but NOPs", "after the end"],
)
def test_options(options, expected):
    content = parse(segment(1, 2, SYN, options=options)).content
    assert (content.mss, content.wscale) == expected


@pytest.mark.parametrize("options", [b"\2\0\0\0", b"\3\1\0\0", b"\1\1\1\2", b"\2\x28\0\0"])
def test_options_with_a_wrong_length_are_malformed(options):
    with pytest.raises(MalformedFrame, match="TCP option"):
        parse(segment(1, 2, SYN, options=options))


def test_every_truncation_is_detected():
    syn = handshake(1, 3)[0]
    for length in range(len(syn)):
        with pytest.raises(MalformedFrame):
            parse(syn[:length])


def test_the_answer_to_a_solicitation_byte_by_byte():
    """The same bytes as Ryu's packet library makes."""
    assert neighbour_advertisement(mac(3), "fe80::3", mac(1), "fe80::1").hex() == (
        "000000000001" "000000000003" "86dd"
        "60000000" "0020" "3a" "ff" "fe800000000000000000000000000003" "fe800000000000000000000000000001"
        "88" "00" "1a17" "60000000" "fe800000000000000000000000000003" "0201" "000000000003"
    )  # fmt: skip


def test_a_dhcp_ack_gives_a_lease():
    assert parse(dhcp_ack(7, "10.0.0.9")).content == Lease(mac(7), "10.0.0.9")
    offer = bytearray(dhcp_ack(7, "10.0.0.9"))
    offer[-2] = 2
    assert parse(bytes(offer)).content is None


WHOLE = st.sampled_from(
    [
        handshake(1, 3)[0],
        arp(1, 1, 3),
        ipv6(LINK_LOCAL, OTHER, 6, bytes(20)),
        solicitation(1, "fe80::1", "fe80::3"),
        dhcp_ack(1, "10.0.0.9"),
    ]
)


@given(WHOLE, st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), max_size=6), st.integers(0, 300))
def test_hostile_bytes_are_malformed(frame, changes, length):
    data = bytearray(frame)
    for at, value in changes:
        data[at % len(data)] = value
    with contextlib.suppress(MalformedFrame):
        parse(bytes(data[:length]))


@given(st.binary(max_size=200))
def test_any_bytes_are_parsed_or_malformed(data):
    with contextlib.suppress(MalformedFrame):
        parse(data)
