"""The traffic programs of flows over DCUDP and UDT, on loopback: their records and their ends."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dcudp.cli import dcudp as command
from tests.support.waiting import wait_until
from weir_base.paths import artifact

PROGRAMS = ("weir-traffic-dcudp", "weir-traffic-udt")
RATES = ("--link-bps", "100000000", "--rate-bps", "100000000")
SIZES = (100_000, 400_000, 5)
Records = list[dict[str, Any]]
pytestmark = pytest.mark.timeout(60)


def free_udp_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def records(path: Path) -> Records:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(params=PROGRAMS)
def argv(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, ...]:
    """The program with the options that all its roles need here."""
    key = tmp_path / "dcudp.key"
    assert CliRunner().invoke(command, ["key", str(key)]).exit_code == 0
    shared = ("--port", str(free_udp_port()), "--key-file", str(key), "--sample-ms", "10")
    return (str(artifact(request.param)), *shared)


@contextmanager
def role(argv: tuple[str, ...], name: str, output: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a role whose records go to a file. At the end it gets SIGTERM, and must end well."""
    program, *shared = argv
    with output.open("wb") as file:
        process = subprocess.Popen((program, name, *shared, "--host", name, *options), stdout=file)
    try:
        yield process
        process.terminate()
        assert process.wait(timeout=20) == 0
    finally:
        process.kill()
        process.wait()


def test_planned_flows_arrive_whole_and_are_recorded(argv: tuple[str, ...], tmp_path: Path) -> None:
    plan, received, sent = tmp_path / "plan", tmp_path / "sink", tmp_path / "flows"
    plan.write_text("".join(f"flows {start} 127.0.0.1 {size} 0\n" for start, size in enumerate(SIZES)))
    with role(argv, "sink", received):
        wait_until(lambda: "listening" in received.read_text(), "the sink listens")
        with role(argv, "flows", sent, "--plan", str(plan), "--start-ns", "0", *RATES) as flows:
            assert flows.wait(timeout=20) == 0
    done = {entry["flow"]: entry for entry in records(sent) if entry["event"] == "flow"}
    assert [done[number]["bytes_acked"] for number in range(len(SIZES))] == list(SIZES)
    assert all(0 < entry["fct_ms"] < 5_000 for entry in done.values())
    goodput = [entry["bytes"] for entry in records(received) if entry["event"] == "goodput"]
    assert goodput == sorted(goodput)
    assert 0 < goodput[-1] <= sum(SIZES)


def test_a_source_sends_until_sigterm_and_its_bytes_arrive(argv: tuple[str, ...], tmp_path: Path) -> None:
    received, sent = tmp_path / "sink", tmp_path / "source"
    with role(argv, "sink", received):
        wait_until(lambda: "listening" in received.read_text(), "the sink listens")
        with role(argv, "source", sent, "--to", "127.0.0.1", *RATES):
            wait_until(lambda: sent.read_text().count('"sample"') >= 40, "forty samples")
    events = [entry["event"] for entry in records(sent)]
    assert events[0] == "connected"
    assert events[-2:] == ["closed", "done"]
    samples = [entry for entry in records(sent) if entry["event"] == "sample"]
    assert all(entry["endless"] and entry["rate_pps"] > 0 for entry in samples)
    assert samples[-1]["bytes_acked"] > samples[0]["bytes_acked"]
    goodput = [entry["bytes"] for entry in records(received) if entry["event"] == "goodput"]
    assert goodput[-1] > samples[-2]["bytes_acked"] / 2


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ((), "a flow over "),
        (("--link-bps", "9", "--rate-bps", "9"), "--link-bps: want a number from 100000 to "),
    ],
)
def test_a_source_that_cannot_send_states_why(
    argv: tuple[str, ...], options: tuple[str, ...], error: str
) -> None:
    program, *shared = argv
    words = (program, "source", *shared, "--to", "127.0.0.1", *options)
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=20)
    assert done.returncode == 1
    (record,) = (json.loads(line) for line in done.stdout.splitlines())
    assert record["event"] == "error"
    assert error in record["error"]
