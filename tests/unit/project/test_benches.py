"""The benchmarks leave nothing behind, however they end, and their helpers keep no CPU busy."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from bench import paced_flow
from weir_base.paths import PROJECT

BENCH = """
import time
from bench.temporary import temporary_folder
with temporary_folder() as folder:
    (folder / "log").touch()
    print(folder, flush=True)
    time.sleep(60)
"""


def test_a_benchmark_that_is_ended_removes_its_folder() -> None:
    command = (sys.executable, "-c", BENCH)
    with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as bench:
        assert bench.stdout
        folder = Path(bench.stdout.readline().decode().strip())
        assert folder.is_dir()
        bench.terminate()
        assert bench.wait(20) == 128 + signal.SIGTERM
    assert not folder.exists()


def test_benchmarks_outside_of_the_sandbox_use_such_a_folder() -> None:
    texts = {path.name: path.read_text() for path in (PROJECT / "bench").glob("*.py")}
    own = {name for name, text in texts.items() if "TemporaryDirectory" in text}
    assert {name for name in own if "sandbox.enter()" not in texts[name]} == {"temporary.py"}


def test_a_paced_receiver_ends_with_its_connection() -> None:
    """Otherwise it keeps a CPU busy until the end of the pacing, and so disturbs the measurement."""
    sender, receiver = socket.socketpair()
    sender.sendall(bytes(10_000))
    sender.close()
    begun = time.monotonic()
    paced_flow.read(receiver, rate_bps=1e9, paced_s=20)
    assert time.monotonic() - begun < 10
