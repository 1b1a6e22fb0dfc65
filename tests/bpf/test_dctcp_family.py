"""weir_d2tcp and weir_l2dct between two network namespaces, compared with their formulas."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator

import pytest

from tests.support.data_plane.dctcp_reference import Reference
from tests.support.data_plane.scripted_wire import MSS, Connection, Step, Wire, scripted_wire
from transports.congestion import BPFFS, load, unload
from transports.deadline import SOL_WEIR, WEIR_DEADLINE, DeadlineError, clear_deadline, set_deadline
from transports.sockets import DctcpSocket

D2TCP, L2DCT = "weir_d2tcp", "weir_l2dct"
ONE = 65536
EARLIER = 200
"""Segments that an application has written before a message."""
SO_MAX_PACING_RATE = 47
SLOW_RATE = 1_000_000
"""Bytes per second, so that most of the earlier data is unsent when the message is written."""


@pytest.fixture(scope="module")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    with scripted_wire(tmp_path_factory.mktemp("script"), D2TCP, L2DCT) as wire:
        yield wire


def kept(wire: Wire, connection: Connection, mark_at: int) -> tuple[float, DctcpSocket]:
    """alpha at the one mark, and the state of the connection after its reduction."""
    steps = bytes(mark_at) + bytes([Step.MARK])
    wire.play(steps)
    connection.send(mark_at + 250)
    sender = Reference(0, 0)
    for ack in wire.acks():
        una = sender.una + ack.acked
        sender.on_ack(una, ack.ece, una + ack.under_way)
        if ack.ece:
            break
    return sender.alpha / ONE, wire.sender_state(connection)


@pytest.mark.parametrize(
    ("size_bytes", "left_s", "d"),
    [
        (0, 0, 1),  # none
        (1 << 30, 5, 2),  # cannot be met
        (400 * MSS, 3000, 0.5),  # far away
        (1 << 30, -1, 0.5),  # missed
        (10 * MSS, 0.001, 1),  # the message is acknowledged before the mark
    ],
)
def test_d2tcp_reduces_by_alpha_to_the_power_of_d(
    wire: Wire, size_bytes: int, left_s: float, d: float
) -> None:
    wire.play()
    with wire.connection(D2TCP, D2TCP) as connection:
        if size_bytes:
            set_deadline(connection.client, size_bytes, left_s)
        alpha, held = kept(wire, connection, 150)

    assert 0.5 < alpha < 0.95
    assert (held.control, held.exponent) == (D2TCP, d)
    assert held.ssthresh == pytest.approx(held.prior_cwnd * (1 - alpha**d / 2), abs=0.51)


@pytest.mark.parametrize(("mark_at", "d"), [(EARLIER + 10, 0.5), (EARLIER + 80, 1)])
def test_a_message_begins_behind_what_is_written(wire: Wire, mark_at: int, d: float) -> None:
    """Earlier data may be unsent: it does not belong to the message. The deadline is missed."""
    wire.play(bytes(mark_at) + bytes([Step.MARK]))
    with wire.connection(D2TCP, D2TCP) as connection:
        connection.client.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, SLOW_RATE)
        connection.client.sendall(bytes(EARLIER * MSS))
        set_deadline(connection.client, 20 * MSS, -1)
        connection.send(100)
        held = wire.sender_state(connection)

    assert held.exponent == d


def test_cleared_deadline_leaves_dctcp(wire: Wire) -> None:
    wire.play()
    with wire.connection(D2TCP, D2TCP) as connection:
        set_deadline(connection.client, 1 << 30, 0.001)
        clear_deadline(connection.client)
        _, held = kept(wire, connection, 150)

    assert held.exponent == 1


@pytest.mark.parametrize(
    ("mark_at", "least", "most"), [(50, 2.5, 2.5), (200, 1.16, 2.24), (900, 0.125, 0.125)]
)
def test_l2dct_reduces_by_alpha_to_the_power_of_its_weight(
    wire: Wire, mark_at: int, least: float, most: float
) -> None:
    """The weight is that of the bytes that are sent when the mark comes back."""
    wire.play()
    with wire.connection(L2DCT, L2DCT) as connection:
        alpha, held = kept(wire, connection, mark_at)

    assert least <= held.exponent <= most
    assert held.ssthresh == pytest.approx(held.prior_cwnd * (1 - alpha**held.exponent / 2), abs=0.51)


def test_new_l2dct_flow_begins_after_a_pause(wire: Wire) -> None:
    wire.play()
    with wire.connection(L2DCT, L2DCT) as connection:
        connection.send(1000)
        time.sleep(0.6)  # longer than an RTO of 200 ms
        _, held = kept(wire, connection, 20)

    assert held.exponent > 1.9  # 270 segments since the pause; 0.125 with those before it


@pytest.mark.parametrize(
    "value",
    [
        struct.pack("=QQ", 0, 1000),  # without a size
        struct.pack("=QQ", 1000, 1_764_000_000_000_000),  # microseconds since 1970
        struct.pack("=QQ", 1 << 41, 1000),
        struct.pack("=Q", 1000),
        struct.pack("=QQQ", 1000, 1000, 0),
    ],
)
def test_kernel_refuses_deadlines_that_cannot_be(wire: Wire, value: bytes) -> None:
    with socket.socket() as tcp, pytest.raises(OSError, match="Invalid argument"):
        tcp.setsockopt(SOL_WEIR, WEIR_DEADLINE, value)


def test_option_is_refused_on_other_sockets_and_other_names(wire: Wire) -> None:
    value = struct.pack("=QQ", 1000, 1000)
    with socket.socket(type=socket.SOCK_DGRAM) as udp, pytest.raises(DeadlineError, match="a TCP socket"):
        set_deadline(udp, 1000, 1)
    with socket.socket() as tcp, pytest.raises(OSError, match="Invalid argument"):
        tcp.setsockopt(SOL_WEIR, WEIR_DEADLINE + 1, value)


@pytest.mark.parametrize("length", [4, 1 << 13])
def test_other_options_are_set_as_without_the_hook(wire: Wire, length: int) -> None:
    """A program sees at most one page of an option. Before Linux 6.5 longer ones fail unless it says so."""
    with socket.socket() as tcp:
        tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, struct.pack("=i", 12_345).ljust(length))
        assert tcp.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) == 12_345


def test_without_d2tcp_the_error_says_what_to_load(wire: Wire) -> None:
    assert unload(D2TCP) is True
    try:
        assert not list(BPFFS.glob("weir_deadline*"))
        with socket.socket() as tcp, pytest.raises(DeadlineError, match="weir transports load weir_d2tcp"):
            set_deadline(tcp, 1000, 1)
    finally:
        load(D2TCP)
