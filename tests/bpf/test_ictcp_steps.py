"""ICTCP's steps in BPF have the windows of the model in Python. Every division is rounded down in both."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libbpf_cffi.libbpf import Object
from tests.support.data_plane.host_c import compiled_bpf
from tests.support.data_plane.ictcp_steps import FLOWS, IctcpSteps
from transports.ictcp_model import Departure

pytestmark = pytest.mark.beside_others

MSS = 1448
START_NS = 10**12
U32 = 1 << 32
HEADERS = 66


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Object]:
    with Object(compiled_bpf("ictcp_steps.bpf.c", tmp_path_factory.mktemp("ictcp"))) as loaded:
        loaded.load()
        yield loaded


@dataclass(frozen=True, slots=True)
class Event:
    """A frame of `nbytes` arrives, or a segment of a connection leaves, which has received `nbytes` more."""

    arrives: bool
    after_ns: int
    nbytes: int
    flow: int
    payload: int
    srtt_us: int
    echo_lag_ms: int
    has_timestamps: bool


events = st.builds(
    Event,
    arrives=st.booleans(),
    after_ns=st.one_of(st.integers(0, 3_000_000), st.sampled_from([60_000_000, 2_000_000_000])),
    nbytes=st.one_of(st.sampled_from([0, MSS, 2 * MSS, 10 * MSS]), st.integers(0, 1 << 20)),
    flow=st.integers(0, 2),
    payload=st.sampled_from([0, 0, 4]),
    srtt_us=st.sampled_from([0, 200, 5_000]),
    echo_lag_ms=st.integers(0, 3),
    has_timestamps=st.booleans(),
)


@settings(max_examples=100, deadline=None)
@given(
    sequence=st.lists(events, max_size=150),
    capacity_mbps=st.sampled_from([1, 100, 10_000]),
    mss=st.integers(216, 8948),
)
def test_windows_and_figures_are_those_of_the_model(
    program: Object, sequence: list[Event], capacity_mbps: int, mss: int
) -> None:
    steps = IctcpSteps(program, capacity_mbps * 10**6)
    now_ns, received = START_NS, [0] * FLOWS
    for event in sequence:
        now_ns += event.after_ns
        if event.arrives:
            steps.arrive(now_ns, event.nbytes + HEADERS)
        else:
            received[event.flow] += event.nbytes
            value = now_ns // 10**6
            times = (value % U32, (value - event.echo_lag_ms) % U32) if event.has_timestamps else None
            seen = Departure(now_ns, received[event.flow], event.payload, mss, event.srtt_us, times)
            window, wanted = steps.depart(event.flow, seen)
            assert window == wanted
        found, model = steps.figures()
        assert found == model


@pytest.mark.parametrize(("capacity_mbps", "flows"), [(100, 1), (100, 4), (100, FLOWS), (1000, 3)])
def test_windows_are_those_of_the_model_over_many_slots(
    program: Object, capacity_mbps: int, flows: int
) -> None:
    """Connections send what window and link allow, at times less, and pause; so every rule is used."""
    steps = IctcpSteps(program, capacity_mbps * 10**6)
    chance = random.Random(flows)
    now_ns, received = START_NS, [0] * FLOWS
    windows: set[int] = set()
    for turn in range(5000):
        rtt_ns = chance.choice([300_000, 500_000, 2_000_000])
        now_ns += 80_000_000 if turn % 500 == 499 else rtt_ns // flows
        flow = turn % flows
        share = capacity_mbps * 10**6 // 8 * rtt_ns // 10**9 // flows
        wanted = max(steps.connections[flow].window_bytes, 2 * MSS) * chance.choice([10, 10, 10, 9, 3]) // 10
        nbytes = min(wanted, 2 * share) if turn // 700 % 2 else min(wanted, share)
        received[flow] += nbytes
        for _ in range(nbytes // MSS):
            steps.arrive(now_ns, MSS + HEADERS)
        value = now_ns // 10**6
        times = (value, value - rtt_ns // 10**6 - 1)
        seen = Departure(now_ns, received[flow], 4 * (chance.random() < 0.1), MSS, rtt_ns // 1000, times)
        window, model = steps.depart(flow, seen)
        assert window == model
        windows.add(window)
    found, figures = steps.figures()
    assert found == figures
    assert found.slot > 150
    assert min(found.increases, found.decreases) > 20
    assert found.restarts > flows
    assert len(windows) > 3
