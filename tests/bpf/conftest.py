"""Fixtures: the data plane of the tests, with one port."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from openflow_ext.switch.dataplane.interface import HostSettings, PortSettings
from openflow_ext.switch.dataplane.kernel import KernelDataPlane
from tests.support.data_plane.bench import BRIDGE, OFPORT, PORT, Bench
from tests.support.data_plane.slow_port import slow_port


@pytest.fixture
def port() -> Iterator[tuple[str, KernelDataPlane]]:
    """A port of 1 Mbit/s with a real queue, and its data plane."""
    with slow_port() as held:
        yield held


@pytest.fixture(scope="session")
def plane() -> Iterator[KernelDataPlane]:
    """One data plane for all tests that run programs, because the verifier takes long to load it."""
    plane = KernelDataPlane(f"weir-test-{os.getpid()}", max_flows=1000)
    try:
        yield plane
    finally:
        plane.destroy()


@pytest.fixture
def bench(plane: KernelDataPlane) -> Iterator[Bench]:
    """The data plane with its port in the initial state; port, flows and rules are removed at the end."""
    plane.enter_port(PORT, BRIDGE, OFPORT)
    plane.configure(PORT, PortSettings(), 100_000_000)
    try:
        yield Bench(plane)
    finally:
        plane.arm(PORT, BRIDGE, [])
        plane.detach(PORT)
        for rule, _ in plane.rules(BRIDGE):
            plane.remove(BRIDGE, rule)
        plane.configure_host(HostSettings())
        plane.reports()
