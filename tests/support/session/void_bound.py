"""Counts the tests of lab runs, and the tests that show nothing because their run was void.

A run counts once for each test that judges it. A void run does not fail the session, because a busy
machine shows nothing about a figure. But a session in which many runs are void has hardly tested the lab.
With WEIR_CI=1 it fails.
"""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

from tests.support.lab.void_runs import VOID, take_verdict

PROPERTY = "lab run"
LEAST_JUDGED = 8
"""Fewer tests have no bound, because a single void run may decide all of them."""
MOST_VOID = 1 / 3
"""Of the tests. On a machine without other work none of about 41 is void, and on a loaded one two thirds.
If one scheme of one experiment has only void runs, about six tests show nothing. That alone does not fail.
"""


class LabRuns:
    """The counts of a session, in the process that makes pytest's summary."""

    def __init__(self) -> None:
        self.judged = 0
        self.void = 0

    @property
    def too_many_void(self) -> bool:
        return self.judged >= LEAST_JUDGED and self.void > MOST_VOID * self.judged

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, verdict in report.user_properties:
            if name == PROPERTY:
                self.judged += 1
                self.void += verdict == VOID

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if self.too_many_void and os.environ.get("WEIR_CI") == "1" and exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.judged:
            terminalreporter.write_line(f"lab runs judged: {self.judged}, of which {self.void} void")
        if self.too_many_void and os.environ.get("WEIR_CI") == "1":
            terminalreporter.write_line(
                f"WEIR_CI=1: more than {MOST_VOID:.0%} of the lab runs were void, which is a failure: "
                "run this on a machine without other work",
                red=True,
            )


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(LabRuns())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put the verdict into the report, which goes from a worker to the controller."""
    report = yield
    if verdict := take_verdict():
        report.user_properties.append((PROPERTY, verdict))
    return report
