"""The flow table: IPv4 flows in buckets of eight slots, other flows in the kernel's hash, each once."""

from __future__ import annotations

import contextlib
import mmap
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from libbpf_cffi import libbpf
from openflow_ext.switch.dataplane.interface import SweepTimes
from openflow_ext.switch.dataplane.kernel import KernelDataPlane
from tests.support.data_plane.bench import BRIDGE, OFPORT, PORT, Bench, reverse, syn
from tests.support.data_plane.packets import ACK, RST, SYN, Segment

pytestmark = pytest.mark.beside_others

LOCAL = Segment()
OUT = reverse(LOCAL)
ROOM = 1000
RESERVE = 1024
SWEEP_STEPS = 512


def elsewhere(bench: Bench) -> int:
    """The number of flows in the kernel's hash."""
    return sum(1 for _ in bench.plane.pinned.maps["other_flows"].keys())  # noqa: SIM118 - a BPF map is no dict


def test_flows_of_full_buckets_are_tracked_in_the_hash(bench: Bench) -> None:
    """1,000 flows in 250 buckets: to some buckets more flows hash than their eight slots hold."""
    bench.count_by_flags()
    for port in range(ROOM):
        bench.handshake_in(replace(LOCAL, src_port=port))

    assert 0 < elsewhere(bench) < ROOM // 20
    read = {
        (flow.local, flow.local_port, flow.remote, flow.remote_port) for flow in bench.plane.pinned.flows()
    }
    assert read == {(OUT.dst, port, OUT.src, OUT.src_port) for port in range(ROOM)}
    assert (bench.counters.n_i, bench.counters.untracked) == (ROOM, 0)

    for port in range(0, ROOM, 2):
        bench.egress(replace(OUT, dst_port=port, flags=RST))
    assert bench.plane.sweep(SweepTimes(closed_s=0)) == ROOM // 2
    for port in range(0, ROOM, 2):
        bench.handshake_in(replace(LOCAL, src_port=port))
    assert bench.counters.n_i == ROOM, "free slots are used again"
    for port in range(ROOM):
        bench.egress(replace(OUT, dst_port=port, flags=RST))
    assert bench.counters.n_i == 0
    assert bench.plane.sweep(SweepTimes(closed_s=0)) == ROOM
    assert (list(bench.plane.pinned.flows()), elsewhere(bench)) == ([], 0)


@pytest.fixture
def memory() -> Iterator[int]:
    """The memory in which two processes state how far they are."""
    memory = os.memfd_create("lockstep")
    os.truncate(memory, mmap.PAGESIZE)
    yield memory
    os.close(memory)


def send_from_process(bench: Bench, memory: int, frames: list[bytes], me: str) -> None:
    """Run the frames through the egress in another process, in lockstep with a second one."""
    said = len(frames[0]).to_bytes(4) + b"".join(frames)
    program = bench.plane.program("weir_egress")
    command = [sys.executable, "-m", "tests.support.data_plane.lockstep", str(program), str(memory), me]
    subprocess.run(command, input=said, pass_fds=(program, memory), check=True, timeout=60)


def test_syns_on_two_cpus_at_once_make_one_flow(bench: Bench, memory: int) -> None:
    """Both CPUs process a SYN in the same microsecond, as often as possible."""
    bench.count_by_flags()
    frames = [syn(replace(OUT, dst_port=port)).pack() for port in range(ROOM)]

    with ThreadPoolExecutor() as senders:
        list(senders.map(lambda me: send_from_process(bench, memory, frames, me), "01"))

    assert bench.counters.untracked == 0
    assert len(list(bench.plane.pinned.flows())) == ROOM
    assert [bench.plane.sweep(SweepTimes(opening_s=0)) for _ in range(2)] == [ROOM, 0]


def test_ipv6_packet_between_mapped_addresses_belongs_to_the_ipv4_flow(bench: Bench) -> None:
    """No host sends such packets. An attacker cannot use them to create flows that never end."""
    bench.count_by_flags()
    local = replace(LOCAL, src=f"::ffff:{LOCAL.src}", dst=f"::ffff:{LOCAL.dst}")
    mapped = reverse(local)
    bench.handshake_in(local)
    assert (bench.counters.n_i, elsewhere(bench)) == (1, 0)

    bench.egress(replace(mapped, flags=RST))

    assert bench.counters.n_i == 0


def test_closing_ends_a_sweep_in_another_thread(
    port_apart: tuple[str, KernelDataPlane], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent stops. Cancelling its task does not end the thread that sweeps."""
    _, plane = port_apart
    plane.enter_port(PORT, BRIDGE, OFPORT)
    bench = Bench(plane)
    for port in range(2 * SWEEP_STEPS):
        bench.egress(syn(replace(OUT, dst_port=port)))
    real, sweeping, closed, calls = libbpf.run, threading.Event(), threading.Event(), 0

    def slow(program: int, packet: bytes) -> tuple[int, bytes]:
        nonlocal calls
        calls += 1
        sweeping.set()
        closed.wait(timeout=0.1)  # close() has to wait for this call
        return real(program, packet)

    monkeypatch.setattr(libbpf, "run", slow)
    with ThreadPoolExecutor() as pool:
        sweep = pool.submit(plane.sweep, SweepTimes())
        assert sweeping.wait(timeout=10)
        plane.close()
        closed.set()
        assert sweep.result() == 0
    assert calls == 1, "the sweep ends early"
    assert plane.sweep(SweepTimes()) == 0


# -- sweeps beside new flows on another CPU --------------------------------------------------------


@contextlib.contextmanager
def sent_beside(bench: Bench, memory: int, frames: list[bytes]) -> Iterator[Callable[[], bool]]:
    """Another process sends the frames. Yields whether it still runs."""
    os.pwrite(memory, b"\xff" * 8, 0)  # its partner is far ahead: it does not wait
    with ThreadPoolExecutor() as senders:
        sending = senders.submit(send_from_process, bench, memory, frames, "1")
        yield lambda: not sending.done()
    sending.result()


def test_sweeps_end_during_a_flood_of_syns(
    bench: Bench, memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each SYN takes the next place that becomes free in the full reserve."""
    real, sweep = libbpf.run, bench.plane.program("weir_sweep")
    calls = 0

    def counted(program: int, packet: bytes) -> tuple[int, bytes]:
        nonlocal calls
        calls += program == sweep
        assert calls <= 100 * RESERVE // SWEEP_STEPS, "the sweep does not end"
        return real(program, packet)

    monkeypatch.setattr(libbpf, "run", counted)
    frames = [syn(replace(OUT, dst_port=port)).pack() for port in range(1 << 16)]
    with sent_beside(bench, memory, frames * 3) as sending:
        while sending():
            calls = 0
            bench.plane.sweep(SweepTimes(opening_s=3600))
    bench.plane.sweep(SweepTimes(opening_s=0))
    assert list(bench.plane.pinned.flows()) == []


def test_sweeps_lose_no_flow_of_a_full_table(bench: Bench, memory: int) -> None:
    """A new flow takes the place of a flow that is being visited: later sweeps would not find that one."""
    bench.count_by_flags()
    for port in range(ROOM):
        bench.handshake_in(replace(LOCAL, src_port=port))
    late = [replace(LOCAL, src="10.0.0.9", src_port=port) for port in range(ROOM)]
    for local in late:
        bench.egress(syn(reverse(local)))
        bench.ingress(replace(syn(local), flags=SYN | ACK, ack=local.ack))

    with sent_beside(bench, memory, [reverse(local).pack() for local in late]) as sending:
        while sending():
            bench.plane.sweep(SweepTimes())

    assert (bench.counters.n_i, bench.counters.untracked) == (ROOM, ROOM)
    assert bench.plane.sweep(SweepTimes(silent_s=0)) == ROOM
    assert (bench.counters.n_i, list(bench.plane.pinned.flows())) == (0, [])
