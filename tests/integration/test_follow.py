"""n of a real switch reaches the paths of Adaptive Pacing of a sending host, by the controller."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.agent.switch_bench import Bench
from tests.support.controllers.port_samples import LISTENER
from tests.support.controllers.processes import controller, free_port
from tests.support.dashboard.browser import dashboard
from tests.support.waiting import DEADLINE_S, wait_until
from transports import pacing_paths
from transports.congestion import loaded
from transports.pacing_cli import in_namespaces
from transports.pacing_paths import FlowsFrom, PacingPath
from webui.access.accounts import Accounts
from weir_base.paths import PROJECT

CONTROL = "weir_ap_reno"
SERVER, PORT = "10.77.0.2", 7000
SAMPLE_S, EVERY_S = 0.1, 0.1
FOLLOWED_WITHIN_S = 3.0
"""The stated time until a change of n is in the map of the sending host, with the times above."""
RATE_MBIT = 100
QUEUE_BYTES = 150_000


@contextlib.contextmanager
def program(bench: Bench, host: int, *argv: str) -> Iterator[subprocess.Popen[str]]:
    """A Python program of tests/support/lab in a host."""
    script = str(PROJECT / "tests" / "support" / "lab" / argv[0])
    command = bench.inside(host, sys.executable, "-I", script, *argv[1:])
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def following(url: str, folder: Path, pid: int) -> Iterator[subprocess.Popen[str]]:
    token = folder / "token"
    token.write_text(Accounts(folder / "accounts.json").add_token("follower", "read") + "\n")
    options = (
        "--controller",
        url,
        "--token-file",
        str(token),
        "--every-s",
        str(EVERY_S),
        "--lifetime-s",
        "2",
    )
    command = [sys.executable, "-m", "weir", "transports", "follow", *options, "--pid", str(pid)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()
            assert process.stdout is not None
            print("the follower said:", process.stdout.read())


def asked(process: subprocess.Popen[str], count: int) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{count}\n")
    process.stdin.flush()
    assert int(process.stdout.readline()) == count


def path_of(pid: int) -> PacingPath | None:
    (paths,) = in_namespaces([pid], pacing_paths.paths)
    return paths.get(ipaddress.ip_network(SERVER))


def connections(pid: int) -> list[dict[str, object]]:
    command = ("nsenter", f"--net=/proc/{pid}/ns/net", sys.executable, "-m", "weir", "transports", "sockets")
    done = subprocess.run(
        [*command, "--json"], capture_output=True, text=True, check=True, timeout=DEADLINE_S
    )
    return list(json.loads(done.stdout))


@pytest.mark.timeout(180)
def test_n_in_the_map_of_a_sender_follows_the_flows_through_the_port(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller then dies: n is too old after its lifetime, and the host counts its own connections."""
    of_port, database, config = free_port(), tmp_path / "weir.db", tmp_path / "weir.toml"
    bench.shape(2, RATE_MBIT)
    config.write_text(f"[telemetry]\nsample_s = {SAMPLE_S}\n")
    monkeypatch.setenv("WEIR_CONFIG", str(config))
    monkeypatch.setenv("WEIR_DB", str(database))
    monkeypatch.setenv("WEIR_TEST_APPS", "fabric_app.app,sccp_app.app")
    with contextlib.ExitStack() as stack:
        stack.enter_context(loaded(CONTROL))
        network = stack.enter_context(contextlib.ExitStack())
        network.enter_context(controller("os_ken", LISTENER, of_port))
        bench.ready_agent(f"tcp:127.0.0.1:{of_port}")
        wait_until(bench.ping, "ping through the fabric")
        server = stack.enter_context(program(bench, 2, "churn.py", "serve", str(PORT)))
        assert server.stdout is not None
        server.stdout.readline()
        sender = stack.enter_context(program(bench, 1, "senders.py", SERVER, str(PORT), CONTROL))
        url = stack.enter_context(dashboard(f"sqlite:///{database}", tmp_path, "--no-yields"))
        follow = stack.enter_context(following(url, tmp_path, sender.pid))
        asked(sender, 1)
        wait_until(lambda: path_of(sender.pid), "the first path")
        for count in (4, 12, 2):
            asked(sender, count)
            began = time.monotonic()
            found = wait_until(
                lambda: path_of(sender.pid),
                f"n is {count}",
                lambda path, count=count: path is not None and path.flows == count,
                FOLLOWED_WITHIN_S,
            )
            print(f"n = {count} after {time.monotonic() - began:.2f} s")
            assert found is not None
            assert (found.flows_from, found.lifetime_s) == (FlowsFrom.NETWORK, 2)
            assert found.rate_bps == RATE_MBIT * 1_000_000
            assert QUEUE_BYTES <= found.buffer_bytes < 1.5 * QUEUE_BYTES
            assert found.allowance_bytes > 0
        told = {one["flows_from"] for one in connections(sender.pid)}
        assert told <= {"network", "window"}
        network.close()
        wait_until(
            lambda: {one["flows_from"] for one in connections(sender.pid)},
            "the host counts",
            lambda sources: sources == {"counted"},
        )
        assert {one["flows"] for one in connections(sender.pid)} == {2}
        follow.terminate()
        assert follow.wait(DEADLINE_S) == 0
        assert path_of(sender.pid) is None
