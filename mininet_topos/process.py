"""A program that the lab starts, awaits and stops: a controller, an agent, a traffic program."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from mininet_topos.errors import LabError, ProgramFailed, Unable
from mininet_topos.signals import undisturbed
from mininet_topos.state import LabState
from openflow_ext.paths import ArtifactMissing, artifact

BIN = Path(sys.executable).parent
POLL_S = 0.02
STOP_S = 10.0
TAIL_LINES = 3


def built(name: str) -> Path:
    """The path of what `make bpf` builds for the lab. Raises Unable."""
    try:
        return artifact(name)
    except ArtifactMissing as missing:
        raise Unable(str(missing)) from None


def command(name: str) -> str:
    """A command of this environment. Raises LabError."""
    path = BIN / name
    if not path.exists():
        raise LabError(f"{path} is missing: run `make setup`")
    return str(path)


def wait_until(ready: Callable[[], bool], timeout_s: float) -> bool:
    """Wait for a condition. Returns whether it came about in time."""
    until = time.monotonic() + timeout_s
    while not ready():
        if time.monotonic() > until:
            return False
        time.sleep(POLL_S)
    return True


class Program:
    """A program under the lab's care: in its own session, known to the lab's state.

    What it writes goes to `log`; with `records`, its standard output goes there instead.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        log: Path,
        state: LabState,
        env: Mapping[str, str] | None = None,
        records: Path | None = None,
    ) -> None:
        self.name = name
        self.log = log
        self._state = state
        with open(log, "ab") as errors, open(records or log, "ab") as output, undisturbed():
            try:
                self._process = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=errors,
                    env={**os.environ, **(env or {})},
                    start_new_session=True,
                )
            except OSError as error:
                raise ProgramFailed(f"{name}: cannot start {argv[0]}: {error.strerror}") from error
            self.pid = self._process.pid
            state.add_process(self.pid)

    @property
    def running(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    @property
    def failed(self) -> bool:
        """Whether it has ended with an error."""
        return self._process.poll() not in (None, 0)

    def output(self) -> str:
        """All it has written to its log."""
        return self.log.read_text(errors="replace")

    def failure(self, what: str) -> ProgramFailed:
        """An error that says what happened, with the last lines of the log and where the rest is."""
        tail = " | ".join(self.output().strip().splitlines()[-TAIL_LINES:])
        return ProgramFailed(f"{self.name} {what}: {tail or 'it said nothing'} (log: {self.log})")

    def check(self) -> None:
        """Raises ProgramFailed when it has ended by itself."""
        if not self.running:
            raise self.failure(f"ended with status {self._process.returncode}")

    def wait_ready(self, ready: Callable[[], bool], what: str, timeout_s: float = 20.0) -> None:
        """Wait for its readiness. Raises ProgramFailed when it ends before, or takes too long."""

        def ready_or_gone() -> bool:
            return not self.running or ready()

        if not wait_until(ready_or_gone, timeout_s):
            raise self.failure(f"was not ready after {timeout_s:.0f} s ({what})")
        self.check()

    def wait(self, timeout_s: float) -> int:
        """Wait for its end and return its status. Raises ProgramFailed when it goes on for too long."""
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise self.failure(f"did not end within {timeout_s:.0f} s") from None
        self._state.drop_process(self.pid)
        return status

    def terminate(self) -> None:
        """Ask it to end, without waiting."""
        if self.running:
            self._process.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        """End it: SIGTERM, then, if it does not heed that, SIGKILL to this one process."""
        self.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._state.drop_process(self.pid)
