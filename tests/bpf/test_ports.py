"""The slots of ports: interface numbers that map to the same slot. The programs on an interface."""

from __future__ import annotations

import socket

import pytest

from libbpf_cffi import libbpf
from openflow_ext.switch.dataplane.interface import DataPlaneError, NoSuchPort
from openflow_ext.switch.dataplane.kernel import KernelDataPlane
from openflow_ext.switch.dataplane.structs import constants
from tests.support.data_plane.bench import BRIDGE, OFPORT, PORT, Bench
from tests.support.data_plane.packets import Segment
from tests.support.data_plane.slow_port import SLOW_BRIDGE

pytestmark = pytest.mark.beside_others

SLOTS, PORTS = int(constants.WEIR_PORT_SLOTS), int(constants.WEIR_MAX_PORTS)
RIVALS = [PORT + PORTS * n for n in range(1, SLOTS + 1)]


def count_one(bench: Bench) -> None:
    bench.handshake(Segment())


def test_port_whose_slot_is_taken_uses_the_next_free_one(bench: Bench) -> None:
    bench.count_by_flags()
    bench.plane.detach(PORT)
    for ifindex in (RIVALS[0], PORT):
        bench.plane.enter_port(ifindex, BRIDGE, OFPORT)
    try:
        count_one(bench)
        assert (bench.counters.n_i, bench.plane.counters(RIVALS[0]).n_i) == (1, 0)
        assert set(bench.plane.attached()) == {PORT, RIVALS[0]}
    finally:
        bench.plane.detach(RIVALS[0])
    assert bench.counters.n_i == 1
    with pytest.raises(NoSuchPort, match=str(RIVALS[0])):
        bench.plane.counters(RIVALS[0])


def test_port_without_a_free_slot_is_refused_with_the_others_names(bench: Bench) -> None:
    *others, last = RIVALS
    try:
        for ifindex in others:
            bench.plane.enter_port(ifindex, BRIDGE, OFPORT)
        with pytest.raises(DataPlaneError, match=f"no slot for interface {last}"):
            bench.plane.enter_port(last, BRIDGE, OFPORT)
    finally:
        for ifindex in others:
            bench.plane.detach(ifindex)
    assert set(bench.plane.attached()) == {PORT}


def test_ports_that_leave_together_take_their_flows_with_them_in_one_sweep(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep visits the flows of all ports, so one for each of 500 ports would take minutes."""
    sweeps: list[dict[str, int]] = []
    run_sweep = bench.plane._sweep
    monkeypatch.setattr(bench.plane, "_sweep", lambda **fields: sweeps.append(fields) or run_sweep(**fields))
    count_one(bench)
    for ifindex in RIVALS[:2]:
        bench.plane.enter_port(ifindex, BRIDGE, OFPORT)
    assert bench.plane.detach(*RIVALS[:2]) == {}
    assert len(list(bench.plane.pinned.flows())) == 1
    assert bench.plane.detach(PORT, RIVALS[0]) == {}
    assert list(bench.plane.pinned.flows()) == []
    assert len(sweeps) == 2
    bench.plane.enter_port(PORT, BRIDGE, OFPORT)


@pytest.mark.parametrize(("rtt_us", "interval_ns"), [(500, 250_000), (100, 50_000), (1, 50_000), (0, 50_000)])
def test_the_queue_is_checked_every_half_rtt_but_not_all_the_time(
    bench: Bench, rtt_us: int, interval_ns: int
) -> None:
    """Checks every 1 us would keep a CPU busy."""
    bench.configure(alarm=True, k_pkts=10, rtt_us=rtt_us)
    _, port = bench.plane.pinned.find_port(PORT)
    assert port.check_interval_ns == interval_ns


def test_slot_is_cleared_for_the_next_port(bench: Bench) -> None:
    bench.count_by_flags()
    count_one(bench)
    bench.plane.detach(PORT)
    bench.plane.enter_port(PORT, BRIDGE, OFPORT)
    assert bench.counters.n_i == 0


def test_an_interface_has_the_ingress_program_of_one_datapath(port: tuple[str, KernelDataPlane]) -> None:
    """The bridge's datapath_type changes to the kernel datapath and back."""
    name, plane = port
    ifindex = socket.if_nametoindex(name)
    for kernel_datapath in (True, False):
        plane.attach(ifindex, name, SLOW_BRIDGE, OFPORT, kernel_datapath=kernel_datapath)
        by_xdp = bool(plane.pinned.qdiscs.xdp(ifindex))
        by_tc = bool(libbpf.tc_program(ifindex, libbpf.TC_INGRESS))
        assert (by_xdp, by_tc) == (not kernel_datapath, kernel_datapath)
