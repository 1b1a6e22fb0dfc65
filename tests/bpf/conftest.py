"""Fixtures: the data plane of the tests, with one port."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from openflow_ext.switch.dataplane.interface import HostSettings, PortSettings
from openflow_ext.switch.dataplane.kernel import KernelDataPlane
from tests.support.data_plane.bench import BRIDGE, OFPORT, PORT, Bench
from tests.support.data_plane.bridged_hosts import Host, bridged_hosts
from tests.support.data_plane.slow_port import SLOW_BRIDGE, slow_port


@pytest.fixture(scope="package")
def plane() -> Iterator[KernelDataPlane]:
    """One data plane for all tests that run programs, because the verifier takes long to load it.

    It ends before the same worker runs labs, whose packets its tracepoints would see.
    """
    plane = KernelDataPlane(f"weir-test-{os.getpid()}", max_flows=1000)
    try:
        yield plane
    finally:
        plane.destroy()


@pytest.fixture
def hosts() -> Iterator[tuple[Host, Host]]:
    """Two hosts behind a Linux bridge, removed at the end."""
    with bridged_hosts() as made:
        yield made


@pytest.fixture
def bench(plane: KernelDataPlane) -> Iterator[Bench]:
    """The data plane with its port in the initial state; port, flows and rules are removed at the end."""
    plane.enter_port(PORT, BRIDGE, OFPORT)
    plane.configure(PORT, PortSettings(), 100_000_000)
    try:
        yield Bench(plane)
    finally:
        clear(plane, PORT, BRIDGE)


@pytest.fixture
def port(plane: KernelDataPlane) -> Iterator[tuple[str, KernelDataPlane]]:
    """A port of 1 Mbit/s with a real queue, and its data plane."""
    with slow_port(plane) as name:
        yield name, plane
        clear(plane, socket.if_nametoindex(name), SLOW_BRIDGE)


@pytest.fixture
def port_apart() -> Iterator[tuple[str, KernelDataPlane]]:
    """As ``port``, with a data plane of its own, which a test may damage or close."""
    plane = KernelDataPlane(f"weir-alarm-{os.getpid()}", max_flows=1000)
    try:
        with slow_port(plane) as name:
            yield name, plane
    finally:
        if plane.folder.exists():
            plane.destroy()


def clear(plane: KernelDataPlane, ifindex: int, bridge: int) -> None:
    """Remove a port with its flows, rules, events and reports. The programs stay for the next test."""
    plane.arm(ifindex, bridge, [])
    plane.detach(ifindex)
    for rule, _ in plane.rules(bridge):
        plane.remove(bridge, rule)
    plane.configure_host(HostSettings())
    plane.events()
    plane.reports()
