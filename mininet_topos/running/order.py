"""The order of the runs of an experiment: repeat by repeat, with the schemes in random order."""

from __future__ import annotations

import random

from mininet_topos.experiments.experiment import Experiment

Block = tuple[int, tuple[str, ...]]
"""The number of a repeat, and its schemes in their order."""


def blocks(experiment: Experiment) -> list[Block]:
    """Return the repeats of an experiment with the order of the schemes, which depends on the seed alone.

    Without repeats the order is that of the experiment. With repeats, every scheme runs once in each repeat
    before any scheme runs in the next one: the machine's slow changes meet all schemes alike.
    """
    if experiment.repeats == 1:
        return [(1, experiment.schemes)]
    found = []
    for repeat in range(1, experiment.repeats + 1):
        schemes = list(experiment.schemes)
        random.Random(f"{experiment.seed} repeat {repeat}").shuffle(schemes)  # noqa: S311 - an order
        found.append((repeat, tuple(schemes)))
    return found
