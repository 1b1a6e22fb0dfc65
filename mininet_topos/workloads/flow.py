"""One flow of a plan."""

from __future__ import annotations

from dataclasses import dataclass

from mininet_topos.errors import BadExperiment

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True, order=True)
class Flow:
    """A transfer of `size_bytes` from host `src` to host `dst`, `start_us` after the start of the plan.

    ``deadline_us``: the time in which it must complete; None: it has no deadline. Raises BadExperiment.
    """

    start_us: int
    src: str
    dst: str
    size_bytes: int
    deadline_us: int | None = None

    def __post_init__(self) -> None:
        if self.src == self.dst:
            raise BadExperiment(f"a flow leads from {self.src} to itself; want two hosts")
        if self.start_us < 0:
            raise BadExperiment(f"start_us of a flow is {self.start_us}; want 0 or more")
        if self.size_bytes < 1:
            raise BadExperiment(f"a flow has {self.size_bytes} bytes; want 1 or more")
        if self.deadline_us is not None and self.deadline_us < 1:
            raise BadExperiment(f"deadline_us of a flow is {self.deadline_us}; want 1 or more, or none")


def by_start(flow: Flow) -> tuple[int, str, str, int]:
    """The key by which plans and traces are sorted, so that a flow has the same number in both."""
    return flow.start_us, flow.src, flow.dst, flow.size_bytes
