"""weir_dctcp between two network namespaces, compared with RFC 8257 segment by segment."""

from __future__ import annotations

import itertools
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from libbpf_cffi.libbpf import pinned_map_id
from tests.support.data_plane.dctcp_reference import section_3_3
from tests.support.data_plane.scripted_wire import (
    CE,
    CWR,
    ECE,
    MSS,
    STEPS,
    Connection,
    Step,
    Wire,
    acks,
    data,
    echoes,
    replay,
    scripted_wire,
)
from tests.support.waiting import wait_until
from transports.cli import transports
from transports.congestion import (
    BPFFS,
    TransportError,
    available,
    is_this_build,
    load,
    require_settable,
    unload,
)
from transports.sockets import ALPHA_ONE, DctcpSocket, SocketReader, socket_reader
from weir_base.paths import artifact

NAME = "weir_dctcp"


@pytest.fixture(scope="module")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    with scripted_wire(tmp_path_factory.mktemp("script"), NAME) as wire:
        yield wire


@pytest.fixture
def dctcp(wire: Wire) -> Iterator[Connection]:
    wire.play()
    with wire.connection(NAME, NAME) as connection:
        yield connection


@pytest.fixture(scope="module")
def reader() -> Iterator[SocketReader]:
    with socket_reader() as reader:
        yield reader


def state(wire: Wire, reader: SocketReader, connection: Connection) -> DctcpSocket:
    """The kernel's state of the sender's end."""
    local = connection.client.getsockname()
    return next(one for one in wire.sender.run(reader.read) if one.local == local)


def every(period: int) -> bytes:
    """A mark on one segment in `period`."""
    return bytes([Step.MARK] + [Step.PASS] * (period - 1)) * (STEPS // period)


def at(step: Step, *places: int) -> bytes:
    steps = bytearray(max(places) + 1)
    for place in places:
        steps[place] = step
    return bytes(steps)


def test_handshake_negotiates_ecn_and_data_is_ecn_capable(dctcp: Connection) -> None:
    dctcp.send(10)
    trace = dctcp.seen()

    assert trace[0].flags & (ECE | CWR) == ECE | CWR
    assert trace[1].flags & (ECE | CWR) == ECE
    assert all(one.ecn in (1, 2) for one in data(trace))


def test_connection_without_ecn_uses_reno(wire: Wire) -> None:
    """Its packets must not be ECN-capable, because the receiver would not echo their marks."""
    wire.receiver.sysctl("tcp_ecn", "0")
    try:
        wire.play(every(2))
        with wire.connection(NAME, "reno") as connection:
            connection.send(50)
            used = connection.client.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
            trace = connection.seen()
    finally:
        wire.receiver.sysctl("tcp_ecn", "2")

    assert used.rstrip(b"\0") == b"reno"
    assert {one.ecn for one in data(trace)} == {0}


@pytest.mark.parametrize("seed", range(3))
def test_each_byte_is_echoed_as_it_arrived(wire: Wire, dctcp: Connection, seed: int) -> None:
    """Section 3.2: the ACK that covers a byte echoes its CE, even if ACKs were delayed before."""
    chosen = random.Random(seed)
    wire.play(bytes(chosen.choices((Step.PASS, Step.MARK), (4, 1), k=3000)))
    dctcp.send(3000)
    sent, echoed = echoes(dctcp)

    assert len(sent) == 3000
    assert echoed == sent


def test_first_bytes_are_echoed_as_they_arrived(wire: Wire) -> None:
    """At first the receiver acknowledges each segment; such an ACK waits while a process owns the socket."""
    for seed in range(30):
        chosen = random.Random(seed)
        wire.play(bytes(chosen.choices((Step.PASS, Step.MARK), k=60)))
        with wire.connection(NAME, NAME) as connection:
            connection.send(60)
            sent, echoed = echoes(connection)

        assert len(sent) == 60
        assert echoed == sent


def test_change_of_ce_is_acknowledged_at_once(wire: Wire) -> None:
    """Section 3.2: one ACK for the data before the change, one for the segment with the change."""
    wire.play()
    with wire.connection(NAME, NAME, read=False) as connection:
        connection.widen_window()
        wire.play(every(7))
        connection.send(400)
        trace = connection.seen()
    sent = data(trace)[-400:]
    acknowledged = {ack.ack for ack in acks(trace) if ack.ack > sent[0].seq}
    changes = [now for one, now in itertools.pairwise(sent) if (one.ecn == CE) != (now.ecn == CE)]

    assert len(changes) == 114
    for change in changes:
        assert {change.seq, change.seq + MSS} <= acknowledged
    assert len(acknowledged) < 300  # between changes ACKs are still delayed


@pytest.mark.parametrize("period", [3, 10, 40])
def test_alpha_converges_to_the_marked_fraction(
    wire: Wire, dctcp: Connection, reader: SocketReader, period: int
) -> None:
    """It is section 3.3's, as played through with the same ACKs.

    The marks are random: windows fall in step with periodic ones, and their mean then depends on the timing.
    """
    chance = random.Random(period)
    wire.play(bytes(chance.choices((Step.PASS, Step.MARK), (period - 1, 1), k=15_000)))
    dctcp.send(15_000)
    held = state(wire, reader, dctcp)
    alphas = [(ack.acked, sender.alpha / ALPHA_ONE) for ack, sender in replay(wire.acks())]
    late = alphas[len(alphas) // 4 :]
    of_bytes = sum(acked * alpha for acked, alpha in late) / sum(acked for acked, _ in late)

    assert held.alpha == alphas[-1][1]
    if 15_000 / len(alphas) < 4:  # longer ACKs (in an emulated machine) end at marks, and windows with them
        assert of_bytes == pytest.approx(1 / period, rel=0.25)
    assert (
        held.cwnd < 4 * period
    )  # Reno's growth and marks balance near 2 / alpha; no cwnd grew without limit


def test_mark_reduces_cwnd_by_half_of_alpha(wire: Wire, dctcp: Connection, reader: SocketReader) -> None:
    """One mark in slow start, while alpha is still large."""
    wire.play(at(Step.MARK, 150))
    dctcp.send(400)
    held = state(wire, reader, dctcp)
    alpha = next(sender.alpha / ALPHA_ONE for ack, sender in replay(wire.acks()) if ack.ece)

    assert 0.6 < alpha < 0.95
    assert held.prior_cwnd > 60
    assert held.ssthresh == pytest.approx(held.prior_cwnd * (1 - alpha / 2), abs=0.5)


@pytest.mark.parametrize(
    "steps", [at(Step.DROP, 400), at(Step.MARK, 399)[:-1] + bytes([Step.MARK, Step.DROP])]
)
def test_loss_halves_cwnd_whatever_alpha_is(
    wire: Wire, dctcp: Connection, reader: SocketReader, steps: bytes
) -> None:
    """Section 3.5; a mark in the same window as the loss reduces cwnd no further."""
    wire.play(steps)
    dctcp.send(450)
    held = state(wire, reader, dctcp)

    assert held.alpha < 0.95
    assert held.prior_cwnd > 100
    assert held.ssthresh == held.prior_cwnd // 2


def test_loss_that_a_tail_loss_probe_repairs_halves_cwnd(
    wire: Wire, dctcp: Connection, reader: SocketReader
) -> None:
    wire.play(at(Step.DROP, 149))
    dctcp.send(150)
    dctcp.send(1)
    held = state(wire, reader, dctcp)

    assert held.prior_cwnd > 60
    assert held.ssthresh == held.prior_cwnd // 2


def test_timeout_sets_cwnd_to_the_loss_window(wire: Wire, dctcp: Connection, reader: SocketReader) -> None:
    """A flight and all its probes are lost: ssthresh is half of cwnd, and slow start begins again."""
    wire.play(at(Step.DROP, *range(100, 133)))
    dctcp.send(100)
    before = state(wire, reader, dctcp)
    dctcp.client.sendall(bytes(30 * MSS))
    held = wait_until(
        lambda: state(wire, reader, dctcp),
        "cwnd falls after the timeout",
        lambda held: held.cwnd < before.cwnd,
    )

    assert held.cwnd <= 2
    assert held.ssthresh == held.prior_cwnd // 2


def test_a_path_whose_mtu_shrinks_leaves_ssthresh(wire: Wire, reader: SocketReader) -> None:
    """The kernel sends the lost segments again in smaller ones, in the state Loss, without congestion."""
    with wire.long_timeout(), wire.connection(NAME, NAME) as connection:
        wire.play()
        connection.send(1)
        wire.play(bytes([Step.DROP]) * 10)
        connection.client.sendall(bytes(10 * MSS))
        wait_until(lambda: wire.played() == 10, "all segments are lost")
        wire.too_big(connection.next_sent(), 1000)
        connection.send(20)
        held = state(wire, reader, connection)

    assert held.prior_cwnd == 0
    assert held.ssthresh > held.cwnd >= 10


def test_marks_from_before_a_pause_are_discarded(wire: Wire, reader: SocketReader) -> None:
    """The observation window starts again, so the marks in it do not count; alpha stays."""
    wire.play()
    with wire.connection(NAME, NAME, read=False) as connection:
        connection.send(43)
        wire.play(every(1))
        connection.send(24)  # one flight with many ACKs; one of the first starts the window
        before = state(wire, reader, connection)
        wire.play()
        time.sleep(0.6)  # longer than an RTO of 200 ms
        connection.send(1)
        after = state(wire, reader, connection)

    assert before.marked_bytes > 0
    assert round(after.alpha * ALPHA_ONE) == section_3_3(round(before.alpha * ALPHA_ONE), 0, MSS)


@pytest.mark.parametrize("restarts", [True, False])
def test_a_pause_reduces_cwnd_unless_the_host_has_it_otherwise(
    wire: Wire, dctcp: Connection, reader: SocketReader, restarts: bool
) -> None:
    """net.ipv4.tcp_slow_start_after_idle of the sender's namespace."""
    dctcp.send(400)
    before = state(wire, reader, dctcp)
    wire.sender.sysctl("tcp_slow_start_after_idle", str(int(restarts)))
    try:
        time.sleep(0.6)  # longer than an RTO of 200 ms
        dctcp.send(1)
        after = state(wire, reader, dctcp)
    finally:
        wire.sender.sysctl("tcp_slow_start_after_idle", "1")

    assert before.cwnd > 40
    if restarts:
        assert after.cwnd <= before.cwnd // 2
    else:
        assert after.cwnd == before.cwnd


@pytest.mark.parametrize("initial", [4, 30])
def test_a_pause_reduces_cwnd_down_to_the_initial_window_of_the_route(
    wire: Wire, reader: SocketReader, initial: int
) -> None:
    wire.play()
    with wire.route("initcwnd", str(initial)), wire.connection(NAME, NAME) as connection:
        connection.send(400)
        before = state(wire, reader, connection)
        time.sleep(2.0)  # longer than six RTOs of 200 ms
        connection.send(1)
        after = state(wire, reader, connection)

    assert before.cwnd > 40
    assert after.cwnd == initial


def chosen_without_rights() -> str:
    """The error of a program without rights that chooses weir_dctcp; empty: it may."""
    program = f"import socket; socket.socket().setsockopt(6, {socket.TCP_CONGESTION}, b'{NAME}')"
    user = ("setpriv", "--reuid", "65534", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all")
    command = (*user, sys.executable, "-I", "-c", program)
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


def test_a_program_without_rights_may_choose_what_the_host_allows(wire: Wire) -> None:
    allowed = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
    before = allowed.read_text()
    assert NAME not in before.split()
    assert "Operation not permitted" in chosen_without_rights()
    allowed.write_text(f"{before.strip()} {NAME}")
    try:
        assert chosen_without_rights() == ""
    finally:
        allowed.write_text(before)


def test_loading_and_unloading_twice_is_harmless(wire: Wire) -> None:
    assert load(NAME) is False
    assert NAME in available()
    assert unload(NAME) is True
    assert unload(NAME) is False
    assert NAME not in available()
    with pytest.raises(TransportError, match="no socket can use weir_dctcp"):
        require_settable(NAME)
    assert load(NAME) is True


def test_a_control_of_another_build_is_replaced(
    wire: Wire, dctcp: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a host goes on with the control from before an upgrade, and a lab measures it."""
    before = pinned_map_id(BPFFS / NAME)
    other = tmp_path / f"{NAME}.bpf.o"
    other.write_bytes(artifact(other.name).read_bytes() + b"\0")
    monkeypatch.setenv("WEIR_BUILD", str(tmp_path))
    assert not is_this_build(NAME)
    answer = CliRunner().invoke(transports, ["load", NAME])
    assert answer.stdout == f"{NAME}: replaced another build\n"
    assert is_this_build(NAME)
    assert pinned_map_id(BPFFS / NAME) != before
    dctcp.send(100)
    assert load(NAME) is False
    monkeypatch.undo()
    assert load(NAME) is True
    (BPFFS / f"{NAME}_build").unlink()  # as a version that wrote none
    assert load(NAME) is True
    unload(NAME)
    assert not (BPFFS / f"{NAME}_build").is_symlink()
    load(NAME)


def test_connections_survive_unloading(wire: Wire, dctcp: Connection) -> None:
    unload(NAME)
    try:
        dctcp.send(100)
    finally:
        load(NAME)
