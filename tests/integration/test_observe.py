"""Observing controllers, and all switches turned off by one command, with real switch, hosts and TCP."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from flowdb.models import ClampRow, DecisionRow
from tests.support.agent.streaming import (
    RECEIVER,
    STREAM_PORT,
    await_clamps,
    await_window,
    clamped_streaming,
)
from tests.support.agent.switch_bench import Bench, run
from tests.support.controllers.port_samples import LISTENER
from tests.support.controllers.processes import controller, free_port
from tests.support.database.rows import rows
from tests.support.waiting import wait_until

pytestmark = pytest.mark.beside_others

RATE_MBIT = 20
SHARE_BYTES = 2 * 1460
"""More than the fair share of one flow at the port, whose bandwidth-delay product is 1500 bytes."""
SETTINGS = """
[sccp]
mode = "{mode}"
common_rtt = "fixed"

[sdtcp]
mode = "{sdtcp_mode}"
k_pkts = 2
rtt_us = 2000
"""


def configure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    config = tmp_path / "weir.toml"
    config.write_text(SETTINGS.format(mode=mode, sdtcp_mode="observe" if mode == "observe" else "alarm"))
    assert tomllib.loads(config.read_text())
    monkeypatch.setenv("WEIR_CONFIG", str(config))
    monkeypatch.setenv("WEIR_DB", str(tmp_path / "weir.db"))
    monkeypatch.setenv("WEIR_TEST_APPS", "fabric_app.app,sdtcp_app.app,sccp_app.app")
    monkeypatch.setenv("WEIR_TEST_SAMPLES", str(tmp_path / "samples"))


@contextlib.contextmanager
def controlled(bench: Bench) -> Iterator[None]:
    """A controller runs, its entries are in the switch, and the port of host 2 has a queue and a share."""
    bench.shape(2, RATE_MBIT)
    port = free_port()
    with controller("ryu", LISTENER, port):
        bench.ready_agent(f"tcp:127.0.0.1:{port}")
        wait_until(lambda: bench.port_counters(2).fair_share_bytes, "the share is computed")
        wait_until(bench.ping, "ping through the fabric")
        yield


def negotiated(bench: Bench) -> tuple[str, str]:
    """The window scales and the MSS of the stream, as its sender negotiated them."""
    text = run(*bench.inside(1, "ss", "-tinH", "dst", f"{RECEIVER}:{STREAM_PORT}"))
    scale, mss = re.search(r"wscale:(\S+)", text), re.search(r"\bmss:(\d+)", text)
    assert scale
    assert mss
    return scale[1], mss[1]


def test_observing_controllers_decide_and_record_and_change_no_packet(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(tmp_path, monkeypatch, "observe")
    with controlled(bench):
        with clamped_streaming(bench) as finish:
            await_window(bench, lambda window: window > 8 * SHARE_BYTES, "the window is the receiver's own")
            await_clamps(bench)
            assert {rule.observes for rule in bench.rules() if rule.window_op} == {True}
            counters = bench.port_counters(2)
            assert (counters.n_i, counters.observes) == (1, True)
            assert counters.alarms > 0, "the queue is as long as it is without Weir"
            assert negotiated(bench)[1] == "1448", "the segments are not fitted"
            sent, came = finish()
        assert came == sent > 0
        found = wait_until(lambda: rows(tmp_path / "weir.db", DecisionRow), "decisions are recorded")
    assert all(one.entry["observed"] for one in found if one.entry)
    assert rows(tmp_path / "weir.db", ClampRow) == []


def fleet(word: str, tmp_path: Path) -> str:
    argv = (sys.executable, "-m", "weir", "fleet", word, "--db", str(tmp_path / "weir.db"))
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_fleet_is_turned_off_and_on_by_one_command(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(tmp_path, monkeypatch, "act")
    with controlled(bench), clamped_streaming(bench) as finish:
        await_window(bench, lambda window: window <= 4 * SHARE_BYTES, "the stream is clamped")
        scales, _ = negotiated(bench)

        assert "off at 1 connected switches" in fleet("off", tmp_path)
        await_window(bench, lambda window: window > 8 * SHARE_BYTES, "the window is free")
        assert (negotiated(bench)[0], bench.port_counters(2).n_i) == (scales, 1)

        assert "on at 1 connected switches" in fleet("on", tmp_path)
        await_window(bench, lambda window: window <= 4 * SHARE_BYTES, "the stream is clamped again")
        sent, came = finish()
    assert came == sent > 0, "windows of a translated scale were right all the time"
