"""Delay and loss of links, where the kernel has netem; where it has not they are refused, never left out.

What a host sends waits, and is lost, at the host's own interface: no queue of a switch, which is what the lab
measures, holds packets that wait for their delay. So a round trip between two hosts takes two delays.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from mininet_topos.errors import BadExperiment, LabError, Unable
from mininet_topos.node import LabHost, inside, run

LIMIT_PKTS = 1_000_000
"""How many may wait: netem's own 1000 packets would be a queue that drops, at 100 Mbit/s from 120 ms on."""
MOST_DELAY_MS = 10_000.0
MOST_LOSS_PERCENT = 90.0
DELAY_STEP_S, LOSS_STEP = 1e-6, 1e-9
"""As exactly as the kernel, which counts ticks of 64 ns and parts of 2^32, is asked: within these."""


@dataclass(frozen=True, slots=True)
class Impairment:
    """How long what a host sends is under way, and what part of its packets is lost, each by itself."""

    delay_ms: float = 0.0
    loss_percent: float = 0.0

    def __bool__(self) -> bool:
        return bool(self.delay_ms or self.loss_percent)

    def check(self) -> None:
        """Raises BadExperiment where no link can be like that."""
        if not 0 <= self.delay_ms <= MOST_DELAY_MS:
            raise BadExperiment(f"a delay of {self.delay_ms} ms: want 0 to {MOST_DELAY_MS:g}")
        if not 0 <= self.loss_percent <= MOST_LOSS_PERCENT:
            raise BadExperiment(f"a loss of {self.loss_percent} percent: want 0 to {MOST_LOSS_PERCENT:g}")


def require_netem() -> None:
    """Raises Unable where the kernel has no netem.

    It is tried, in a network of its own that ends with the attempt; root's attempt loads a kernel module.
    """
    try:
        run("unshare", "--net", "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms")
    except LabError as error:
        raise Unable(
            f"delay and loss need netem, and this kernel has none: `modprobe sch_netem`, use a kernel that "
            f"has it (Debian's and Ubuntu's do), or ask for neither ({error})"
        ) from error


def impair(host: LabHost, wanted: Impairment) -> None:
    """Put netem on a host's interface and read it back. Raises LabError where it is not as stated."""
    options = ["limit", str(LIMIT_PKTS)]
    if wanted.delay_ms:
        options += ["delay", f"{wanted.delay_ms * 1000:.0f}us"]
    if wanted.loss_percent:
        options += ["loss", "random", f"{wanted.loss_percent:g}%"]
    _tc(host, "qdisc", "replace", "dev", _ifname(host), "root", "netem", *options)
    check_impaired(host, wanted)


def check_impaired(host: LabHost, wanted: Impairment) -> None:
    """Raises LabError where a host's link has another delay or loss than is stated."""
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
    """How many packets a host's link has lost. Raises LabError where its netem is gone."""
    return int(_netem(host)["drops"])


def _netem(host: LabHost) -> dict[str, Any]:
    for qdisc in json.loads(_tc(host, "-s", "-j", "qdisc", "show", "dev", _ifname(host))):
        if qdisc["kind"] == "netem":
            return dict(qdisc)
    raise LabError(f"{host.name}: its link has no netem: something took it off")


def _ifname(host: LabHost) -> str:
    return str(host.defaultIntf().name)


def _tc(host: LabHost, *args: str) -> str:
    """Run tc in a host's network."""
    return run(*inside(host, "tc", *args))
