"""The order of tests on several workers (`pytest -n`): unit tests on all of them, then the rest on one.

Tests of the other tiers use the machine: network namespaces, Open vSwitch, BPF and timing. Nothing may run
beside them. They start after the other workers have ended. With more than two workers, the last one runs no
unit test, so that nothing that unit tests leave in a process is there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

UNIT = "tests/unit/"
MACHINE = "the machine"
"""The tests that use the machine. They are one unit of work."""


class UnitTestsFirst(LoadScopeScheduling):  # type: ignore[misc]
    """Each unit test goes to the next free worker. A file with a fixture for the module stays whole."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        self.config.option.loadscopereorder = False
        self._shared: dict[str, bool] = {}
        self._kept: WorkerController | None = None

    def schedule(self) -> None:
        if self.collection is None and len(self.nodes) > 2:
            tests = self.registered_collections[self.nodes[-1]]
            if len({test.startswith(UNIT) for test in tests}) == 2:
                self._kept = self.nodes[-1]
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        if not nodeid.startswith(UNIT):
            return MACHINE
        file = nodeid.partition("::")[0]
        if file not in self._shared:
            self._shared[file] = shares_a_fixture(self.config.rootpath / file)
        return file if self._shared[file] else nodeid

    def _assign_work_unit(self, node: WorkerController) -> None:
        if MACHINE in self.workqueue:
            self.workqueue.move_to_end(MACHINE)
        if len(self.nodes) == 1 or not (self._only_the_machine_is_left() or node is self._kept):
            super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        if self._only_the_machine_is_left():
            self._hand_over()
        elif len(self.nodes) == 1 or node is not self._kept:
            super()._reschedule(node)

    def remove_node(self, node: WorkerController) -> str | None:
        crashed: str | None = super().remove_node(node)
        if self.nodes and self._only_the_machine_is_left():
            self._hand_over()
        return crashed

    def _only_the_machine_is_left(self) -> bool:
        return list(self.workqueue) == [MACHINE]

    def _hand_over(self) -> None:
        """End all workers but one. When they have ended, that one gets the tests that use the machine."""
        last = self._kept if self._kept in self.nodes else self.nodes[0]
        others = [node for node in self.nodes if node is not last]
        for node in others:
            if not node.shutting_down:
                node.shutdown()
        if not others and not last.shutting_down:
            super()._assign_work_unit(last)


def shares_a_fixture(file: Path) -> bool:
    """Whether a test file makes a fixture once for all its tests."""
    return 'scope="module"' in file.read_text()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> UnitTestsFirst:
    return UnitTestsFirst(config, log)
