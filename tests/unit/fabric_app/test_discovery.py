"""LLDP: golden bytes, hostile bytes, and links that a host tries to fake."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric_app import lldp
from fabric_app.discovery import Discovery
from fabric_app.frames import MalformedFrame
from fabric_app.graph import Link
from fabric_app.lldp import ForeignFrame, ForgedFrame, Probe
from flowdb.flow import PortKey

KEY = b"k" * 32
A, B, C = PortKey(1, 5), PortKey(2, 7), PortKey(3, 9)
LOST_AFTER = 3
GOLDEN = bytes.fromhex(
    "0180c200000e" "0a" "812573730d" "88cc"  # to the nearest bridge, from switch 1 port 5
    "0209" "07" "0000000000000001"  # chassis
    "0405" "07" "00000005"  # port
    "0602" "0002"  # time to live, in seconds
    "fe1c" "0a5765" "01" "000000000000002a"  # ours: serial number 42
    "560c63eceba612bade627bcf20fd59c2"  # HMAC-SHA256
    "0000"
)  # fmt: skip


def test_golden_bytes() -> None:
    assert lldp.encode(Probe(A, 42), KEY) == GOLDEN
    assert lldp.decode(GOLDEN, KEY) == Probe(A, 42)
    assert lldp.decode(GOLDEN + bytes(10), KEY) == Probe(A, 42), "padded to the least frame"


def test_any_changed_bit_of_the_content_is_detected() -> None:
    for at in range(14, len(GOLDEN) - 2):
        for bit in range(8):
            forged = bytearray(GOLDEN)
            forged[at] ^= 1 << bit
            with contextlib.suppress(ForgedFrame, ForeignFrame, MalformedFrame):
                assert lldp.decode(bytes(forged), KEY) == Probe(A, 42)
    with pytest.raises(ForgedFrame, match="signature"):
        lldp.decode(GOLDEN, b"x" * 32)


def test_every_truncation_is_detected() -> None:
    for length in range(14, len(GOLDEN)):
        with pytest.raises((MalformedFrame, ForgedFrame)):
            lldp.decode(GOLDEN[:length], KEY)


def test_lldp_of_other_programs_is_foreign() -> None:
    other = GOLDEN[:14] + bytes.fromhex("0207040000000000010403020031060200780000")
    with pytest.raises(ForeignFrame):
        lldp.decode(other, KEY)


@given(st.binary(max_size=120))
def test_hostile_bytes_are_malformed(data: bytes) -> None:
    with pytest.raises((MalformedFrame, ForeignFrame, ForgedFrame)):
        lldp.decode(GOLDEN[:14] + data, KEY)


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1))
def test_round_trip(dpid: int, port_no: int, serial: int) -> None:
    probe = Probe(PortKey(dpid, port_no), serial)
    assert lldp.decode(lldp.encode(probe, KEY), KEY) == probe


class Wire:
    """Discovery, and the last probe of every port."""

    def __init__(self, *ports: PortKey) -> None:
        self.discovery = Discovery(KEY, interval_ns=500, settle_ns=500, lost_after=LOST_AFTER)
        self.now_ns = 0
        self.last: dict[PortKey, bytes] = {}
        for port in ports:
            self.discovery.port_up(port, 0)
        self.tick(0)

    def tick(self, passed_ns: int = 500) -> None:
        self.now_ns += passed_ns
        self.last.update(self.discovery.due(self.now_ns))

    def carry(self, sender: PortKey, *receivers: PortKey) -> None:
        """The last probe of a port arrives at another port."""
        for receiver in receivers:
            self.last.update(self.discovery.heard(receiver, self.last[sender], self.now_ns))

    def cable(self, one: PortKey, other: PortKey) -> None:
        self.carry(one, other)
        self.carry(other, one)

    @property
    def links(self) -> set[Link]:
        return self.discovery.links()


def test_a_link_needs_probes_in_both_directions() -> None:
    wire = Wire(A, B, C)
    wire.carry(A, B)
    assert wire.links == set()
    assert wire.discovery.is_edge(B, 10_000) is False, "whoever hears a switch is no edge"
    wire.carry(B, A)
    assert wire.links == {Link.of(B, A)}
    assert wire.discovery.is_edge(C, 499) is None
    assert wire.discovery.is_edge(C, 500) is True


def test_a_port_that_hears_a_probe_sends_one_at_once() -> None:
    wire = Wire(A, B)
    before = wire.last[B]
    wire.carry(A, B)
    assert wire.last[B] != before


def test_a_replayed_frame_is_refused() -> None:
    wire = Wire(A, B)
    recorded = wire.last[A]
    wire.cable(A, B)
    wire.discovery.heard(B, recorded, 0)
    for _ in range(LOST_AFTER):
        wire.tick()
    with pytest.raises(ForgedFrame, match="not one of its last probes"):
        wire.discovery.heard(B, recorded, wire.now_ns)
    assert wire.discovery.forged == 1


def test_a_frame_that_returns_through_its_own_port_is_refused() -> None:
    wire = Wire(A)
    with pytest.raises(ForgedFrame, match="returned"):
        wire.carry(A, A)
    assert wire.discovery.is_edge(A, 1000) is True


def test_one_host_cannot_fake_a_link() -> None:
    """The host has the probes of its port A. A second host at B can replay them there."""
    wire = Wire(A, B)
    for _ in range(5):
        wire.carry(A, B)
        wire.tick()
    assert wire.links == set()


def test_a_probe_that_arrives_at_two_ports_makes_no_link() -> None:
    wire = Wire(A, B, C)
    wire.cable(A, B)
    assert wire.links
    wire.tick()
    wire.carry(A, B, C)
    assert wire.links == set()
    for _ in range(4):
        wire.tick()
        assert wire.links == set()
        wire.cable(A, B)
    assert wire.links == {Link.of(A, B)}


def test_probes_that_are_late_keep_a_link() -> None:
    """Each is two intervals late, as on a machine that has too much work."""
    wire = Wire(A, B)
    wire.cable(A, B)
    late = [dict(wire.last)]
    for _ in range(4 * LOST_AFTER):
        wire.tick()
        late.append(dict(wire.last))
        for sender, receiver in ((A, B), (B, A)):
            wire.discovery.heard(receiver, late[-min(len(late), LOST_AFTER)][sender], wire.now_ns)
        assert wire.links


def test_an_older_probe_at_another_port_makes_no_link() -> None:
    wire = Wire(A, B, C)
    recorded = wire.last[A]
    wire.cable(A, B)
    wire.tick()
    wire.cable(A, B)
    wire.discovery.heard(C, recorded, wire.now_ns)
    assert wire.links == set()


def test_a_link_ends_when_probes_go_unheard_or_a_port_goes_down() -> None:
    wire = Wire(A, B)
    wire.cable(A, B)
    for _ in range(2):  # an answer went unheard before
        wire.tick()
    assert wire.links
    wire.tick(100_000)  # a controller that was held up
    assert wire.links == set()
    wire.cable(A, B)
    assert wire.links
    wire.discovery.port_down(B)
    assert wire.links == set()
    assert wire.discovery.is_edge(A, 10**9) is False, "a switch without a controller may be behind it"
    wire.discovery.port_down(A)
    wire.discovery.port_up(A, 10**9)
    assert wire.discovery.is_edge(A, 2 * 10**9) is True


def test_a_delayed_controller_loses_no_link() -> None:
    wire = Wire(A, B)
    wire.cable(A, B)
    for _ in range(5):
        wire.tick(10**9)
        wire.cable(A, B)
    assert wire.links


def test_nothing_is_due_before_the_stated_time() -> None:
    wire = Wire(A, B)
    discovery = wire.discovery
    wire.cable(A, B)
    for now_ns in range(1, 20_000, 7):
        before, version = discovery.due_ns, discovery.version
        probes = discovery.due(now_ns)
        assert (now_ns >= before) or (probes, discovery.version) == ([], version)
        assert discovery.due_ns > now_ns


def test_edge_ports_are_probed_rarely() -> None:
    wire = Wire(A)
    wire.tick()
    probes = [len(wire.discovery.due(now_ns)) for now_ns in range(600, 6600, 100)]
    assert sum(probes) == 1
