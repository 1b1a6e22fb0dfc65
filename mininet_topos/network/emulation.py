"""The choice of means for impaired links: netem if the kernel has it and it suffices, or the delay line."""

from __future__ import annotations

from typing import Any, Protocol

from mininet_topos.machine.commands import built
from mininet_topos.network.delay_line import PROGRAM, DelayLine
from mininet_topos.network.impairment import Impairment
from mininet_topos.network.link_counts import LinkCounts
from mininet_topos.network.netem import Netem, has_netem

PROBE = "weir-delay-probe"


class ImpairedLinks(Protocol):
    """The hosts' links of a network with impairments."""

    @property
    def means(self) -> str:
        """The name of the means: `netem` or `delay line`."""

    def apply(self) -> None:
        """Set the impairments. Raises LabError if the kernel's values differ afterwards."""

    def change(self, wanted: Impairment) -> None:
        """Set other impairments while packets pass. Raises LabError if they cannot be set."""

    def check(self) -> None:
        """Raise LabError if the impairments are not as stated."""

    def counts(self) -> LinkCounts:
        """Return the packets that were lost and duplicated on purpose."""

    def record(self) -> dict[str, Any]:
        """Return, for the record of a run, what happened between the last two calls of ``counts``."""


def means_of(wanted: Impairment) -> str:
    """Return the means that this machine uses for an impairment; "" without one. Raises Unable."""
    if not wanted:
        return ""
    if wanted.is_of_netem and has_netem():
        return Netem.means
    built(PROGRAM)
    built(PROBE)
    return DelayLine.means
