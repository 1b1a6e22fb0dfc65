"""The traffic programs (native/traffic*) in the hosts: their processes and their records."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from mininet_topos.errors import ProgramFailed
from mininet_topos.experiments.baselines import TCP_PROGRAM
from mininet_topos.machine.commands import built
from mininet_topos.machine.lab_state import LabState
from mininet_topos.machine.programs import Program, wait_until
from mininet_topos.network.nodes import LabHost, inside
from mininet_topos.records.raw_records import read_records

WORKER_PORT = 5001
SINK_PORT = 5002
"""Of long flows: one more for each further transport of a scheme."""
PLAN_PORT = 5102
"""Of planned flows, so that a sink of long flows counts no other bytes."""


class Traffic:
    """The traffic programs of one run, which all append their records to one file."""

    def __init__(self, records: Path, state: LabState) -> None:
        self.records = records
        self._state = state
        self._log = records.with_suffix(".log")
        self._programs: list[Program] = []
        records.touch()

    def start(
        self,
        host: LabHost,
        role: str,
        *options: str,
        port: int,
        cc: str = "reno",
        program: str = TCP_PROGRAM,
    ) -> Program:
        """Start a role in a host. `cc`: the congestion control of its sockets; empty: they are not TCP's."""
        named = ("--host", host.name, "--port", str(port), *(("--cc", cc) if cc else ()))
        argv = inside(host, str(built(program)), role, *named, *options)
        started = Program(
            f"traffic {role} in {host.name}", argv, self._log, self._state, records=self.records
        )
        self._programs.append(started)
        return started

    def await_event(self, event: str, count: int, timeout_s: float) -> None:
        """Wait until `event` has been recorded `count` times.

        Raises ProgramFailed if a program ends with an error, or if it takes too long.
        """
        needle = f'"event":"{event}"'

        def seen_or_failed() -> bool:
            self.check()
            return self.records.read_text().count(needle) >= count

        if not wait_until(seen_or_failed, timeout_s):
            seen = self.records.read_text().count(needle)
            missing = f"{seen} of {count} hosts {event}"
            raise ProgramFailed(f"traffic: {missing} after {timeout_s:.0f} s ({self.records})")

    def check(self) -> None:
        """Raise ProgramFailed, with the error that the program has recorded, if a program has failed."""
        for program in self._programs:
            if program.failed:
                errors = [record for record in read_records(self.records) if record["event"] == "error"]
                if errors:
                    host, error = errors[0]["host"], errors[0]["error"]
                    raise ProgramFailed(f"traffic: {host}: {error} ({self.records})")
                raise program.failure("failed")

    def stop(self) -> None:
        """End all programs, the last role first, so that the end that opened a connection closes it."""
        for _, group in groupby(reversed(self._programs), key=lambda program: program.name.split()[1]):
            programs = list(group)
            for program in programs:
                program.terminate()
            for program in programs:
                program.stop()
        self._programs.clear()
