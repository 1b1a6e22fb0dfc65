"""A program that the lab starts, waits for and stops: a controller, an agent, a traffic program."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from mininet_topos.errors import ProgramFailed
from mininet_topos.machine.lab_state import LabState
from mininet_topos.machine.signals import undisturbed

POLL_S = 0.02
STOP_S = 10.0
TAIL_LINES = 3


def wait_until(ready: Callable[[], bool], timeout_s: float) -> bool:
    """Wait for a condition. Returns whether it became true in time."""
    until = time.monotonic() + timeout_s
    while not ready():
        if time.monotonic() > until:
            return False
        time.sleep(POLL_S)
    return True


class Program:
    """A running program in a session of its own, which the lab's state lists.

    Its output goes to `log`; with `records`, its standard output goes to that file instead.
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
        """Whether the program still runs."""
        return self._process.poll() is None

    @property
    def failed(self) -> bool:
        """Whether the program has ended with an error."""
        return self._process.poll() not in (None, 0)

    def output(self) -> str:
        """Return the content of the program's log."""
        return self.log.read_text(errors="replace")

    def failure(self, what: str) -> ProgramFailed:
        """Return an error that states what happened, the last lines of the log, and the log's path."""
        tail = " | ".join(self.output().strip().splitlines()[-TAIL_LINES:])
        return ProgramFailed(f"{self.name} {what}: {tail or 'its log is empty'} (log: {self.log})")

    def check(self) -> None:
        """Raise ProgramFailed if the program has ended without `stop`."""
        if not self.running:
            raise self.failure(f"ended with status {self._process.returncode}")

    def wait_ready(self, ready: Callable[[], bool], what: str, timeout_s: float = 20.0) -> None:
        """Wait until the program is ready. Raises ProgramFailed if it ends before, or takes too long.

        `what` states, for the error message, what is missing.
        """

        def ready_or_ended() -> bool:
            return not self.running or ready()

        if not wait_until(ready_or_ended, timeout_s):
            raise self.failure(f"was not ready after {timeout_s:.0f} s ({what})")
        self.check()

    def wait(self, timeout_s: float) -> int:
        """Wait for the program's end and return its status. Raises ProgramFailed if it takes too long."""
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise self.failure(f"did not end within {timeout_s:.0f} s") from None
        self._state.drop_process(self.pid)
        return status

    def terminate(self) -> None:
        """Send SIGTERM to the program, without waiting for its end."""
        if self.running:
            self._process.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        """End the program with SIGTERM or, if it still runs after STOP_S, with SIGKILL."""
        self.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._state.drop_process(self.pid)
