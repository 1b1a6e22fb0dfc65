"""The layout: packages introduce themselves, folders stay small, tests share helpers and wait for states."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from tests.support.source_tree import PACKAGES, parsed, python_sources, relative
from weir_base.paths import PROJECT

MOST_MODULES = 16
LARGE_FOLDERS = {
    "bench": "one module for each benchmark; they share helpers but are independent programs",
    "fabric_app": "a core divided by concern: one flat level shows what a packet passes through",
    "tests/bpf": "one module for each part of the data plane",
    "tests/integration": "one module for each subject",
    "tests/unit/mininet_topos": "one module for each module of the lab, whose folders are small",
}
"""Folders with more than ``MOST_MODULES`` modules, each with the reason why it has no sub-packages."""

SLEEPS = {
    "tests/abuse/test_fabric_claims.py": (1, "the meters of a port allow a whole burst again"),
    "tests/abuse/test_fail_mode.py": (1, "Open vSwitch without a controller for three inactivity probes"),
    "tests/abuse/test_openflow_channel.py": (1, "a slow reader is observed until its time is over"),
    "tests/abuse/test_many_connections.py": (2, "rates settle, and are observed over some seconds"),
    "tests/support/faults/trial.py": (1, "a fault lasts for some time"),
    "tests/support/waiting.py": (2, "the polling interval of wait_until and wait_until_async"),
    "tests/support/lab/echo.py": (1, "the caller's pace: a byte each 20 ms on every connection"),
    "tests/support/lab/forged_arp.py": (1, "the sender's pace"),
    "tests/support/lab/inject.py": (1, "the sender's pace"),
    "tests/support/lab/diamond.py": (1, "tcpdump prints a packet that it has received some ms later"),
    "tests/bpf/test_conformance.py": (1, "a connection is idle for longer than an RTO"),
    "tests/bpf/test_release.py": (1, "an entry's hard timeout passes in the programs"),
    "tests/bpf/test_window_limits.py": (1, "a round trip lasts for some time"),
    "tests/bpf/test_give_back.py": (1, "the link is idle"),
    "tests/bpf/test_allowance.py": (
        5,
        "link and port are idle, an application pauses, a handshake takes its RTT",
    ),
    "tests/bpf/test_clamp.py": (2, "programs read the clock at its last tick, and clamps expire with time"),
    "tests/bpf/test_adaptive_pacing.py": (1, "a connection that pauses for longer than an RTO"),
    "tests/bpf/test_dctcp.py": (3, "a connection that is idle for longer than a retransmission timeout"),
    "tests/bpf/test_dctcp_family.py": (1, "a connection is idle for longer than a retransmission timeout"),
    "tests/bpf/test_dctcp_plus.py": (1, "a pause, longer than an RTO, ends slow_time"),
    "tests/bpf/test_expiry.py": (4, "idle and hard timeouts of entries"),
    "tests/bpf/test_interactive_hosts.py": (2, "pauses of an application"),
    "tests/bpf/test_mss.py": (3, "SYNs of a burst are counted within 10 ms; a receiver delays its ACK"),
    "tests/bpf/test_reference.py": (1, "turns pass while random segments are sent"),
    "tests/bpf/test_share.py": (6, "turns pass, in which a port counts its active senders"),
    "tests/bpf/test_turns.py": (2, "turns pass, in which a port counts its active senders"),
    "tests/integration/test_fabric.py": (3, "frames are counted over a second; a failure may last 2 s"),
    "tests/integration/test_sccp_counts.py": (
        3,
        "a rate and a share are observed over a time; kills are 0.5 s apart",
    ),
    "tests/integration/test_sdtcp_policies.py": (1, "no flow is punished during a flood"),
    "tests/unit/sdtcp_app/test_process.py": (1, "nothing shows that the writer waits for a locked database"),
    "tests/unit/switch/test_cli.py": (2, "the watchdog hears a loop that runs, and none that hangs"),
    "tests/unit/switch/openflow/test_flow_reports.py": (1, "lets the event loop run once"),
    "tests/unit/switch/ovs/test_ovsdb.py": (1, "lets the event loop run the end of a connection"),
    "tests/unit/webui/test_api.py": (1, "a chart that takes long to make"),
    "tests/unit/webui/test_live.py": (2, "how often the hub polls in a time"),
}
"""The calls of ``sleep`` in tests: how many each file has, and why elapsed time is their subject."""


def sources_of_tests() -> list[Path]:
    return [path for path in python_sources() if path.is_relative_to(PROJECT / "tests")]


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_has_a_readme_and_is_typed(package: str) -> None:
    assert (PROJECT / package / "README.md").is_file()
    assert (PROJECT / package / "py.typed").is_file()


def sub_packages() -> list[Path]:
    return sorted(path for name in PACKAGES for path in (PROJECT / name).rglob("__init__.py"))


@pytest.mark.parametrize("init", sub_packages(), ids=relative)
def test_a_sub_package_states_what_it_holds(init: Path) -> None:
    """In a README.md or in the docstring of its __init__.py."""
    assert (init.parent / "README.md").is_file() or ast.get_docstring(parsed(init)), relative(init.parent)


def test_folders_have_few_modules() -> None:
    counts = Counter(relative(path.parent) for path in python_sources() if path.name != "__init__.py")
    large = {folder for folder, count in counts.items() if count > MOST_MODULES}
    assert large <= set(LARGE_FOLDERS), (
        "more than 16 modules: make sub-packages, or list the folder with a reason"
    )


def imported_from_tests(node: ast.stmt) -> list[str]:
    """The test modules that an import statement names."""
    if isinstance(node, ast.ImportFrom):
        names = [f"{node.module or ''}.{alias.name}" for alias in node.names]
    elif isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    else:
        return []
    return [name for name in names if any(part.startswith("test_") for part in name.split(".")[:-1])]


def test_no_module_imports_from_a_test() -> None:
    found = {
        relative(path): names
        for path in sources_of_tests()
        if (names := [name for node in ast.walk(parsed(path)) for name in imported_from_tests(node)])
    }
    assert not found, "move what several tests need to tests/support"


def sleeps(path: Path) -> int:
    """How many calls of a function named sleep a file has."""
    calls = (node.func for node in ast.walk(parsed(path)) if isinstance(node, ast.Call))
    names = (getattr(function, "attr", getattr(function, "id", "")) for function in calls)
    return sum(name == "sleep" for name in names)


def test_tests_sleep_only_where_time_is_their_subject() -> None:
    found = {relative(path): count for path in sources_of_tests() if (count := sleeps(path))}
    allowed = {name: count for name, (count, _) in SLEEPS.items()}
    assert found == allowed, "wait for a state (tests/support/waiting.py), or list the sleep with its reason"
