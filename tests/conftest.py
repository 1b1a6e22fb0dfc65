"""The tiers of tests: a test's folder is its tier, and a mark adds the requirements of another tier.

pytest deselects the tiers that this machine does not support, and prints the reason. With WEIR_CI=1 the
machine must support every tier, so a deselected tier or a skipped test is a failure.

With `pytest -n` the workers collect the tests, and report to the controller what they deselected.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.database.postgres import binaries
from transports.congestion import TRANSPORTS
from weir import probes
from weir_base import settings

pytest_plugins = [
    "tests.support.agent.fixtures",
    "tests.support.session.void_bound",
    "tests.support.session.workers",
]
HERE = Path(__file__).parent


def pytest_configure() -> None:
    """Let tests and the programs that they start be the same on each machine.

    They have the default settings, not the settings of the services of this machine. They react to SIGINT,
    which a shell's background job ignores.
    """
    os.environ[settings.VARIABLE] = ""
    settings.MACHINE_FILE = "/nonexistent/weir.toml"
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _built() -> str:
    transports = (transport.artifact for transport in TRANSPORTS.values())
    objects = ("weir.bpf.o", "queue_probe.bpf.o", *transports, "dctcp_sockets.bpf.o", "deadlines.bpf.o")
    programs = ("weir-traffic", "weir-traffic-dcudp", "weir-stalls", "weir-delay-line", "weir-delay-probe")
    return probes.artifacts(*objects, *programs)


def _postgres() -> str:
    if (place := binaries()) is None:
        raise probes.ProbeFailed("no PostgreSQL: apt-get install postgresql")
    return str(place)


def _html_checker() -> str:
    return probes.run(probes.tool("java"), "-version")


def _dcudp() -> str:
    probes.artifacts("libdcudp.so")
    return probes.tool("cargo")


def _compiler() -> str:
    probes.artifacts("vmlinux.h")
    return probes.tool("clang")


SWITCH = (probes.rights, probes.bpf_file_system, _built, probes.open_vswitch, probes.mininet)
"""The requirements of a real switch with real hosts."""
NEEDS: dict[str, tuple[Callable[[], str], ...]] = {
    "unit": (),
    "bpf": (probes.rights, probes.bpf_file_system, _built),
    "web": (probes.chromium,),
    "integration": SWITCH,
    "abuse": SWITCH,
    "postgres": (_postgres,),
    "cargo": (_dcudp,),
    "compiler": (_compiler,),
    "html": (_html_checker,),
}
NOT_RUN = pytest.StashKey[dict[str, tuple[str, int]]]()


def why_not(tier: str) -> str | None:
    """The reason why this machine does not support a tier, or None."""
    for probe in NEEDS[tier]:
        try:
            probe()
        except probes.ProbeFailed as lack:
            return str(lack)
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(item.path.relative_to(HERE).parts[0])
    not_run = config.stash.setdefault(NOT_RUN, {})
    deselected: set[pytest.Item] = set()
    for tier in NEEDS:
        members = {item for item in items if item.get_closest_marker(tier)}
        if members and (reason := why_not(tier)):
            not_run[tier] = (reason, len(members))
            deselected |= members
    if deselected:
        config.hook.pytest_deselected(items=list(deselected))
        items[:] = [item for item in items if item not in deselected]


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    config = session.config
    if hasattr(config, "workeroutput"):
        config.workeroutput["not_run"] = config.stash.get(NOT_RUN, {})
        return
    if os.environ.get("WEIR_CI") != "1" or exitstatus != pytest.ExitCode.OK:
        return
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if config.stash.get(NOT_RUN, {}) or reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """A worker has ended. A worker that crashed has no output."""
    not_run = getattr(node, "workeroutput", {}).get("not_run", {})
    node.config.stash.setdefault(NOT_RUN, {}).update(not_run)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for tier, (reason, count) in config.stash.get(NOT_RUN, {}).items():
        terminalreporter.write_line(f"not run: {tier} ({count} tests), because {reason}", yellow=True)
    if os.environ.get("WEIR_CI") == "1" and terminalreporter.config.stash.get(NOT_RUN, {}):
        terminalreporter.write_line("WEIR_CI=1: a tier that is not run is a failure", red=True)
