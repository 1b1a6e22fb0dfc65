"""Delay and loss of the hosts' links by the kernel's netem, at the interface of the host that sends."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from mininet_topos.errors import LabError
from mininet_topos.machine.commands import run
from mininet_topos.network.impairment import Impairment
from mininet_topos.network.link_counts import LinkCounts
from mininet_topos.network.nodes import LabHost, inside

LIMIT_PKTS = 1_000_000
"""The limit of waiting packets. With netem's default of 1000, a long delay would make netem drop packets."""
DELAY_STEP_S, LOSS_STEP = 1e-6, 1e-9
"""Tolerances when a value is read back: the kernel counts ticks of 64 ns and parts of 2^32."""


def has_netem() -> bool:
    """Whether the kernel has netem.

    The test uses a temporary network namespace. As root, it makes the kernel load the module.
    """
    try:
        run("unshare", "--net", "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms")
    except LabError:
        return False
    return True


class Netem:
    """netem on the links of hosts."""

    means = "netem"

    def __init__(self, hosts: Sequence[LabHost], wanted: Impairment) -> None:
        self._hosts, self._wanted = hosts, wanted

    def apply(self) -> None:
        """Put netem on every host's interface and read it back. Raises LabError if its values differ."""
        for host in self._hosts:
            impair(host, self._wanted)

    def change(self, wanted: Impairment) -> None:
        """Set other impairments while packets pass. Raises LabError if the kernel's values differ."""
        self._wanted = wanted
        self.apply()

    def check(self) -> None:
        """Raise LabError if a host's link has another delay or loss than is stated."""
        for host in self._hosts:
            check_impaired(host, self._wanted)

    def counts(self) -> LinkCounts:
        """Return the packets that the links have lost. Raises LabError if netem is gone."""
        return LinkCounts(lost=sum(lost_pkts(host) for host in self._hosts))

    def record(self) -> dict[str, Any]:
        """Return the record of the last run: netem counts nothing beside what ``counts`` returns."""
        return {"by": self.means}


def impair(host: LabHost, wanted: Impairment) -> None:
    """Put netem on a host's interface and read it back. Raises LabError if its values differ afterwards."""
    options = ["limit", str(LIMIT_PKTS)]
    if wanted.delay_ms:
        options += ["delay", f"{wanted.delay_ms * 1000:.0f}us"]
    if wanted.loss_percent:
        options += ["loss", "random", f"{wanted.loss_percent:g}%"]
    _tc(host, "qdisc", "replace", "dev", _ifname(host), "root", "netem", *options)
    check_impaired(host, wanted)


def check_impaired(host: LabHost, wanted: Impairment) -> None:
    """Raise LabError if a host's link has another delay or loss than is stated."""
    options = _netem(host)["options"]
    delay_s = options.get("delay", {}).get("delay", 0.0)
    loss = options.get("loss-random", {}).get("loss", 0.0)
    as_stated = (
        options["limit"] == LIMIT_PKTS
        and math.isclose(delay_s, wanted.delay_ms / 1000, abs_tol=DELAY_STEP_S)
        and math.isclose(loss, wanted.loss_percent / 100, abs_tol=LOSS_STEP)
    )
    if not as_stated:
        raise LabError(f"{host.name}: its link has netem {options}, not {wanted}")


def lost_pkts(host: LabHost) -> int:
    """Return how many packets a host's link has lost. Raises LabError if its netem is gone."""
    return int(_netem(host)["drops"])


def _netem(host: LabHost) -> dict[str, Any]:
    for qdisc in json.loads(_tc(host, "-s", "-j", "qdisc", "show", "dev", _ifname(host))):
        if qdisc["kind"] == "netem":
            return dict(qdisc)
    raise LabError(f"{host.name}: its link has no netem: another program has removed it")


def _ifname(host: LabHost) -> str:
    return str(host.defaultIntf().name)


def _tc(host: LabHost, *args: str) -> str:
    """Run tc in a host's network namespace."""
    return run(*inside(host, "tc", *args))
