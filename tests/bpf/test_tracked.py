"""The flow table: IPv4 flows in buckets of eight slots, other flows in the kernel's hash, each once."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from openflow_ext.switch.dataplane.interface import SweepTimes
from tests.support.data_plane.bench import Bench, reverse, syn
from tests.support.data_plane.packets import RST, Segment

pytestmark = pytest.mark.beside_others

LOCAL = Segment()
OUT = reverse(LOCAL)
ROOM = 1000


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


def test_syns_on_two_cpus_at_once_make_one_flow(bench: Bench) -> None:
    """Both CPUs process a SYN in the same microsecond, as often as possible."""
    bench.count_by_flags()
    frames = [syn(replace(OUT, dst_port=port)).pack() for port in range(ROOM)]
    said = len(frames[0]).to_bytes(4) + b"".join(frames)
    program, memory = bench.plane.program("weir_egress"), os.memfd_create("lockstep")
    os.truncate(memory, mmap.PAGESIZE)

    def send(me: str) -> None:
        command = [sys.executable, "-m", "tests.support.data_plane.lockstep", str(program), str(memory), me]
        subprocess.run(command, input=said, pass_fds=(program, memory), check=True, timeout=60)

    with ThreadPoolExecutor() as senders:
        list(senders.map(send, "01"))
    os.close(memory)

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
