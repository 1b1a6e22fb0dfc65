"""The order of tests on several workers (`pytest -n`): first some beside each other, then the rest alone.

Unit tests run beside others, and so does each file of another tier with the mark `beside_others`: its
bridges, ports and pins have names of their own, and no time or rate decides. Files with the mark
`lab_beside_others` use the machine's Open vSwitch, so they run one after another, beside the others. The
remaining tests use the machine: Open vSwitch as a whole, or timing. Nothing may run beside them. They start
after the other workers have ended.

With more than two workers, the last one runs the tests that use the machine, and no unit test: nothing that
a unit test leaves in a process is there. Until the others have ended it runs marked files, labs first. The
other workers start with the unit tests, which need a CPU each. Tests of a switch mostly wait for it.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

UNIT = "tests/unit/"
BESIDE_OTHERS = "mark.beside_others"
LAB_BESIDE_OTHERS = "mark.lab_beside_others"
LABS = "labs"
"""The files of labs that may run beside other tests. They are one unit of work."""
MACHINE = "the machine"
"""The tests that use the machine. They are one unit of work."""
FILES = "files"
"""The kind of a unit of work that is a marked file."""


class TheMachineLast(LoadScopeScheduling):  # type: ignore[misc]
    """Each unit test goes to the next free worker. Other files and those with a module fixture stay whole."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        self.config.option.loadscopereorder = False
        self._scopes: dict[str, str | None] = {}
        self._kept: WorkerController | None = None

    def schedule(self) -> None:
        if self.collection is None and len(self.nodes) > 2:
            tests = self.registered_collections[self.nodes[-1]]
            if len({self._split_scope(test) == MACHINE for test in tests}) == 2:
                self._kept = self.nodes[-1]
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        if file not in self._scopes:
            self._scopes[file] = scope_of(file, (self.config.rootpath / file).read_text())
        return self._scopes[file] or nodeid

    def _assign_work_unit(self, node: WorkerController) -> None:
        if len(self.nodes) == 1 and MACHINE in self.workqueue:
            self.workqueue.move_to_end(MACHINE)
        elif len(self.nodes) > 1:
            scope = self._next_scope(node)
            if scope is None:
                return
            self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)

    def _next_scope(self, node: WorkerController) -> str | None:
        """The unit of work that a worker gets beside others; None: it gets none."""
        if node is self._kept:
            wanted: tuple[str, ...] = (LABS, FILES)
        elif self._kept in self.nodes:
            wanted = (UNIT, FILES)
        else:
            wanted = (LABS, UNIT, FILES)
        for kind in wanted:
            for scope in self.workqueue:
                if kind_of(scope) == kind:
                    return scope
        return None

    def _reschedule(self, node: WorkerController) -> None:
        if self._only_the_machine_is_left():
            self._hand_over()
        else:
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


def scope_of(file: str, text: str) -> str | None:
    """The unit of work to which the tests of a file belong; None if each test is one of its own."""
    if file.startswith(UNIT):
        return file if 'scope="module"' in text else None
    if LAB_BESIDE_OTHERS in text:
        return LABS
    return file if BESIDE_OTHERS in text else MACHINE


def kind_of(scope: str) -> str:
    """The kind of a unit of work: LABS, MACHINE, UNIT or FILES."""
    if scope in (LABS, MACHINE):
        return scope
    return UNIT if scope.startswith(UNIT) else FILES


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> TheMachineLast:
    return TheMachineLast(config, log)
