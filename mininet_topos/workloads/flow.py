"""One flow of a plan."""

from __future__ import annotations

from dataclasses import dataclass

from mininet_topos.errors import BadExperiment

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True, order=True)
class Flow:
    """`size_bytes` from host `src` to host `dst`, from `start_us` after the plan's begin.

    ``deadline_us``: how long it may take; None: as long as it takes. Raises BadExperiment.
    """

    start_us: int
    src: str
    dst: str
    size_bytes: int
    deadline_us: int | None = None

    def __post_init__(self) -> None:
        if self.src == self.dst:
            raise BadExperiment(f"a flow from {self.src} to itself: want two hosts")
        if self.start_us < 0:
            raise BadExperiment(f"a flow at {self.start_us} us: want 0 or later")
        if self.size_bytes < 1:
            raise BadExperiment(f"a flow of {self.size_bytes} bytes: want 1 or more")
        if self.deadline_us is not None and self.deadline_us < 1:
            raise BadExperiment(f"a deadline of {self.deadline_us} us: want 1 or more, or none")
