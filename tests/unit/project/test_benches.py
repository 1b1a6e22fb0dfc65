"""The benchmarks leave nothing behind, however they end."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

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
