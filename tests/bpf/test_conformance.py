"""Each congestion control against a model in Python, over every call of whole connections.

A connection has marks, losses, timeouts, overtaken segments, delayed ACKs, pauses and skipped calls.
After every call cwnd and ssthresh equal the model's, which goes on from its own windows. Where alpha has
an exponent, a reduction may differ by a segment, because alpha^d is rounded; then the model goes on from the
kernel's window.
"""

from __future__ import annotations

import ipaddress
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.data_plane.recorded_calls import LEFT_OUT, Recorder, Snapshot, recorder
from tests.support.data_plane.scripted_wire import MSS, RECEIVER, Step, Wire, scripted_wire
from tests.support.data_plane.sender_reference import CWR, HEADERS, LOSS, Model, Settings
from transports import pacing_paths
from transports.congestion import TRANSPORTS
from transports.deadline import set_deadline
from transports.pacing_paths import PacingPath

FLOWS, FIRST_WINDOW = 60, 3
DEADLINE_S = 0.8
BUFFER_BYTES = FLOWS * FIRST_WINDOW * (MSS + HEADERS)
SEGMENTS = 2000
TAIL = 3
"""Lost segments at the end of a message: two, and the probe. A timeout follows."""


@pytest.fixture(scope="module")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    with scripted_wire(tmp_path_factory.mktemp("script")) as wire, wire.reordering():
        yield wire


def script(seed: int) -> bytes:
    """Stretches without marks, with few and many marks, with single losses, and overtaken segments."""
    chosen, steps = random.Random(seed), [Step.PASS] * 120
    kinds = (
        (200, 0, 0, 0),
        (60, 1, 0, 0),
        (3, 2, 0, 0),
        (1, 2, 0, 0),
        (150, 2, 1, 0),
        (40, 1, 0, 3),
        (300, 0, 1, 0),
    )
    while len(steps) < SEGMENTS:
        steps += chosen.choices(tuple(Step), chosen.choice(kinds), k=chosen.randrange(20, 200))
    return bytes(steps)


def settings_of(control: str) -> Settings:
    base = control.removeprefix("weir_").removeprefix("ap_")
    if control.startswith("weir_ap_"):
        return Settings(base, buffer_bytes=BUFFER_BYTES, flows=FLOWS)
    return Settings(base)


def record(wire: Wire, recorder: Recorder, settings: Settings, steps: bytes, skip_period: int) -> None:
    """Send several messages with pauses; the first of them has a deadline."""
    wire.play(steps)
    recorder.clear(skip_period)
    with wire.connection(recorder.name, recorder.name) as connection:
        if settings.base == "d2tcp":
            settings.end_byte = 2 * SEGMENTS // 3 * MSS
            settings.at_ns = time.monotonic_ns() + round(DEADLINE_S * 1e9)
            set_deadline(connection.client, settings.end_byte, DEADLINE_S)
        connection.send(2 * SEGMENTS // 3)
        wire.play(bytes([Step.DROP] * TAIL))
        connection.send(TAIL - 1)
        wire.play(steps[SEGMENTS // 2 :])
        for segments in (SEGMENTS // 3, 30):
            time.sleep(0.5)  # longer than an RTO of 200 ms
            connection.send(segments)


def adopt(model: Model, before: Snapshot) -> str:
    """Take over what the kernel itself set since the last call. Returns its name.

    A kernel that skips the call of ssthresh() takes any value as its result (decision 0030). The control then
    sets ssthresh again in cong_control().
    """
    if before.cwnd_cnt != model.count:
        assert before.cwnd_cnt == 0, "the kernel begins to count again"
        model.count = 0
    if (before.cwnd, before.ssthresh) == (model.cwnd, model.ssthresh):
        return ""
    undone = before.cwnd == max(model.cwnd, before.prior_cwnd) and before.ssthresh >= model.ssthresh
    states = (before.state, before.argument if before.name == "weir_set_state" else before.state)
    lost = LOSS in states and before.cwnd <= before.in_flight + 1
    is_skipped = before.ssthresh != model.ssthresh and max(states) >= CWR
    assert undone or lost or (is_skipped and before.cwnd == model.cwnd), (model, before)
    model.cwnd, model.ssthresh = before.cwnd, before.ssthresh
    return "undone" if undone else "skipped" if is_skipped else "loss window"


def compare(settings: Settings, calls: list[tuple[Snapshot, Snapshot]]) -> Counter[str]:
    """Assert that the windows are equal after every call. Returns how often each thing happened."""
    model, seen = Model(settings), Counter[str]()
    begins = next(at for at, (before, _) in enumerate(calls) if before.name == "weir_init")
    model.init(*calls[begins])
    for before, after in calls[begins:]:
        seen[adopt(model, before)] += 1
        model.call(before, after)
        seen["left out"] += before.moment == LEFT_OUT
        if settings.base in ("d2tcp", "l2dct") and 0 < abs(model.ssthresh - after.ssthresh) <= 1:
            model.cwnd = model.ssthresh = after.ssthresh
            seen["rounded"] += 1
        found = (after.cwnd, after.ssthresh, after.cwnd_cnt)
        assert (model.cwnd, model.ssthresh, model.count) == found, (model, before, after)
    return seen + Counter(model.reductions)


@pytest.mark.parametrize("control", TRANSPORTS)
def test_windows_of_whole_connections_are_those_of_the_model(
    wire: Wire, tmp_path: Path, control: str
) -> None:
    settings, total = settings_of(control), Counter[str]()
    network = ipaddress.ip_network(RECEIVER)
    with recorder(control, tmp_path) as calls:
        if settings.flows:
            path = PacingPath(buffer_bytes=BUFFER_BYTES, rate_bps=10**9, flows=FLOWS)
            wire.sender.run(lambda: pacing_paths.set_path(network, path))
        for seed, skip_period in ((0, 0), (1, 4)):
            record(wire, calls, settings, script(seed), skip_period)
            total += compare(settings, calls.calls())
    assert total["timeout"] >= 2
    assert total["loss"] >= 4
    assert total["skipped"] <= 4
    assert total["undone"] <= total["loss"] + total["marks"]
    assert settings.base == "reno" or total["marks"] >= 20
    assert total["left out"] >= 500
    assert total["rounded"] <= total["marks"] / 20
