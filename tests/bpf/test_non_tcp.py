"""The virtual queue of packets that are not TCP."""

from __future__ import annotations

import time

import pytest

from openflow_ext.switch.dataplane.interface import PortSettings
from tests.support.data_plane.bench import PORT, Bench
from tests.support.data_plane.slow_port import FRAME

pytestmark = pytest.mark.beside_others


def test_a_later_time_of_another_cpu_does_not_empty_the_queue(bench: Bench) -> None:
    """Two CPUs read the clock one after the other, and write to the port in the other order."""
    bench.plane.configure(PORT, PortSettings(), 100_000_000, 1_000_000)
    with bench.changed_state() as state:
        state.non_tcp_queue_bytes, state.non_tcp_ns = 50_000, time.monotonic_ns() + 10**12

    bench.egress_raw(FRAME)

    key, _ = bench.plane.pinned.find_port(PORT)
    assert bench.plane.pinned.maps["port_states"].get(key).non_tcp_queue_bytes == 50_000 + len(FRAME)
