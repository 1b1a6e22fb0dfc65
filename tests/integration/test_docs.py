"""Every command that the pages show is run here, as it stands but for the bridge's name.

`make test` runs this very test, and tests/integration/test_demo.py runs `make demo`.
"""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.switch_bench import DEADLINE_S, Bench, open_vswitch, until
from tests.unit.test_docs import PAGES, PROJECT, commands

PORT = 6653
PINS = Path("/sys/fs/bpf/weir")
SET_UP = ("make setup", "make bpf")
CONFIG = ".venv/bin/weir config check weir.toml"
DOCTOR = ".venv/bin/weir doctor"
SDTCP = ".venv/bin/ryu-manager fabric_app.app sdtcp_app.app"
SCCP = ".venv/bin/ryu-manager fabric_app.app sccp_app.app"
OS_KEN = (
    ".venv/bin/weir controller --engine os-ken --listen 127.0.0.1:6653 --apps fabric_app.app,sccp_app.app"
)
SWITCH = f".venv/bin/weir switch --bridge br0 --controller tcp:127.0.0.1:{PORT}"
DETACH = ".venv/bin/weir switch --bridge br0 --detach"
LOOKS = (
    ".venv/bin/weir ports",
    ".venv/bin/weir flows",
    ".venv/bin/weir flows --tracked --limit 20 --json",
)
WATCH = ".venv/bin/weir ports --watch"
RUN_HERE = {*SET_UP, CONFIG, DOCTOR, SDTCP, SCCP, OS_KEN, SWITCH, DETACH, *LOOKS, WATCH}
RUN_ELSEWHERE = {"make test", "make demo"}


class Shell:
    """Runs lines in a folder of its own that looks like the project's, with the tests' Open vSwitch."""

    def __init__(self, folder: Path, bench: Bench) -> None:
        self.folder, self.bench = folder, bench
        (folder / ".venv").symlink_to(PROJECT / ".venv")
        self.env = {**bench.ovs.env, "WEIR_CONFIG": str(folder / "weir.toml")}
        (folder / "weir.toml").write_text(f'[flowdb]\nurl = "sqlite:///{folder}/weir.db"\n')

    def start(self, line: str) -> subprocess.Popen[str]:
        line = line.replace("br0", self.bench.bridge)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen(line.split(), cwd=self.folder, env=self.env, **pipes)  # type: ignore[call-overload,no-any-return]

    def run(self, line: str) -> str:
        process = self.start(line)
        output, _ = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0, output
        return output

    @contextlib.contextmanager
    def going(self, line: str, exit_code: int = 0) -> Iterator[subprocess.Popen[str]]:
        """A line that goes on until Ctrl-C, which it takes well."""
        process = self.start(line)
        try:
            yield process
            assert process.poll() is None, process.communicate()[0]
            process.send_signal(signal.SIGINT)
            output, _ = process.communicate(timeout=DEADLINE_S)
            assert process.returncode == exit_code, output
            assert "Traceback" not in output
        finally:
            process.kill()
            process.wait()


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    assert not PINS.exists(), "a weir switch works on this machine, or has left its data plane: detach it"
    with open_vswitch() as ovs:
        bench = Bench(ovs)
        shell = Shell(tmp_path, bench)
        try:
            bench.build()
            yield shell
        finally:
            shell.start(DETACH).communicate(timeout=DEADLINE_S)
            bench.tear_down()


def listens() -> bool:
    with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", PORT)):
        return True
    return False


def test_each_command_of_the_pages_is_run() -> None:
    assert {line for page in PAGES for line in commands(page)} == RUN_HERE | RUN_ELSEWHERE


@pytest.mark.parametrize("line", [*SET_UP, DOCTOR])
def test_in_the_project(line: str) -> None:
    subprocess.run(line.split(), cwd=PROJECT, check=True, capture_output=True, timeout=120)


def test_the_settings_that_the_page_shows(tmp_path: Path) -> None:
    page = (PROJECT / "docs" / "operating.md").read_text()
    (tmp_path / "weir.toml").write_text("\n".join(re.findall(r"```toml\n(.*?)```", page, re.DOTALL)))
    (tmp_path / ".venv").symlink_to(PROJECT / ".venv")
    subprocess.run(CONFIG.split(), cwd=tmp_path, check=True, capture_output=True, timeout=DEADLINE_S)


def test_a_switch_and_its_controller(shell: Shell) -> None:
    with shell.going(SDTCP):
        until(listens, "the controller listens")
        with shell.going(SWITCH):
            until(shell.bench.ping, "ping by way of the controller")
            for line in LOOKS:
                assert shell.run(line)
            with shell.going(WATCH) as watch:
                assert watch.stdout is not None
                shown = watch.stdout
                until(lambda: shell.bench.port(1) in shown.readline(), "the watch shows a port")
        assert not PINS.exists(), "Ctrl-C takes the data plane off"
        switch = shell.start(SWITCH)
        until(lambda: (PINS / "ports").exists() and shell.bench.ping(), "the switch works again")
        switch.kill()
        switch.communicate()
        assert PINS.exists(), "the data plane works on after a crash"
        shell.run(DETACH)
        assert not PINS.exists()


@pytest.mark.parametrize("line", [SCCP, OS_KEN])
def test_controllers(shell: Shell, line: str) -> None:
    with shell.going(line):
        until(listens, "the controller listens")
        with shell.going(SWITCH):
            until(shell.bench.ping, "ping by way of the controller")
