"""Delay and loss of the hosts' links, by netem. A kernel without netem is refused.

A packet waits, and may be lost, at the interface of the host that sends it. No switch queue, which is what
the lab measures, holds packets that wait for their delay. A round trip between two hosts takes two delays.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from mininet_topos.errors import BadExperiment, LabError, Unable
from mininet_topos.machine.commands import run
from mininet_topos.network.nodes import LabHost, inside

LIMIT_PKTS = 1_000_000
"""The limit of waiting packets. With netem's default of 1000, a long delay would make netem drop packets."""
MOST_DELAY_MS = 10_000.0
MOST_LOSS_PERCENT = 90.0
DELAY_STEP_S, LOSS_STEP = 1e-6, 1e-9
"""Tolerances when a value is read back: the kernel counts ticks of 64 ns and parts of 2^32."""


@dataclass(frozen=True, slots=True)
class Impairment:
    """The one-way delay of a host's link, and the independent probability that it loses a packet."""

    delay_ms: float = 0.0
    loss_percent: float = 0.0

    def __bool__(self) -> bool:
        return bool(self.delay_ms or self.loss_percent)

    def check(self) -> None:
        """Raise BadExperiment if a value is out of range."""
        if not 0 <= self.delay_ms <= MOST_DELAY_MS:
            raise BadExperiment(f"delay_ms is {self.delay_ms}; want 0 to {MOST_DELAY_MS:g}")
        if not 0 <= self.loss_percent <= MOST_LOSS_PERCENT:
            raise BadExperiment(f"loss_percent is {self.loss_percent}; want 0 to {MOST_LOSS_PERCENT:g}")


def require_netem() -> None:
    """Raise Unable if the kernel has no netem.

    The test uses a temporary network namespace. As root, it makes the kernel load the module.
    """
    try:
        run("unshare", "--net", "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms")
    except LabError as error:
        raise Unable(
            f"delay and loss need netem, and this kernel has none: run `modprobe sch_netem`, use a kernel "
            f"with netem (Debian's and Ubuntu's have it), or leave out delay and loss ({error})"
        ) from error


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
