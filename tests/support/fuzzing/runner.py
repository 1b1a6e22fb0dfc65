"""A fuzz of one target: blocks of seeded inputs, each of which can be run again by its number.

The inputs of a block depend on the target, the seed and the block's number alone. So a fuzz can stop after
any block and go on later, and a failure can be repeated.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

BLOCK_INPUTS = 1000
MOST_FAILURES = 20
"""So many failures are kept; all are counted."""
WARM_BLOCKS = 3
"""Memory counts from the end of this block of a process: by then caches are full."""
CPU_LIMIT_S = 2.0
"""An input needs some milliseconds. A garbage collection of a large test process may take half a second."""


class Target(Protocol):
    """A part of the project under a fuzz."""

    def begin(self) -> None:
        """Make the state at the start of a block. After a failure it is called in the block."""

    def feed(self, rng: random.Random) -> bool:
        """Make one input and give it to the target. Returns whether the target accepted it.

        Any exception is a failure. So is the use of more than CPU_LIMIT_S.
        """

    def close(self) -> None:
        """Remove all that the target has made."""


class Hang(BaseException):
    """The target has not returned in time. Not an Exception, because a target may catch that."""


@dataclass
class Progress:
    """What a fuzz has done so far.

    ``growth_kb``: the largest growth of a process's memory; ``late_kb``: in the second half of its blocks.
    """

    target: str
    seed: int
    blocks: int = 0
    accepted: int = 0
    crashes: int = 0
    hangs: int = 0
    seconds: float = 0.0
    growth_kb: int = 0
    late_kb: int = 0
    failures: list[dict[str, Any]] = field(default_factory=list)

    @property
    def inputs(self) -> int:
        return self.blocks * BLOCK_INPUTS

    def fail(self, number: int, error: BaseException) -> None:
        """Count a failure of an input of the current block."""
        hung = isinstance(error, Hang)
        self.hangs += hung
        self.crashes += not hung
        if len(self.failures) < MOST_FAILURES:
            text = f"{type(error).__name__}: {error}"[:500]
            self.failures.append({"block": self.blocks, "input": number, "error": text})


def generator(progress: Progress, block: int) -> random.Random:
    """The random numbers of a block."""
    return random.Random(f"{progress.target} {progress.seed} {block}")


def run_block(target: Target, progress: Progress) -> None:
    """Run the next block."""
    rng, began = generator(progress, progress.blocks), time.monotonic()
    target.begin()
    for number in range(BLOCK_INPUTS):
        try:
            progress.accepted += within_limit(lambda: target.feed(rng))
        except (Exception, Hang) as error:
            progress.fail(number, error)
            target.begin()
    progress.blocks += 1
    progress.seconds += time.monotonic() - began


def run(
    target: Target, progress: Progress, inputs: int, after_block: Callable[[Progress], None] = lambda _: None
) -> None:
    """Run blocks until the fuzz has had so many inputs, and watch the memory of this process."""
    used_kb = []
    for ran in range(-(-inputs // BLOCK_INPUTS) - progress.blocks):
        run_block(target, progress)
        if ran >= WARM_BLOCKS:
            used_kb.append(memory_kb())
            progress.growth_kb = max(progress.growth_kb, used_kb[-1] - used_kb[0])
            progress.late_kb = used_kb[-1] - used_kb[len(used_kb) // 2]
        after_block(progress)


def memory_kb() -> int:
    """The resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") // 1024


def within_limit(work: Callable[[], bool]) -> bool:
    """What ``work`` returns. Raises Hang if it takes too much CPU time, even if the target catches that."""
    hung = False

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal hung
        hung = True
        raise Hang

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_LIMIT_S)
    try:
        result = work()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    if hung:
        raise Hang
    return result
