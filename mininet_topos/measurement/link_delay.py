"""The delay of impaired links, measured from end to end at the start of a run (native/delay_probe)."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from mininet_topos.errors import LabError
from mininet_topos.machine.commands import built
from mininet_topos.network.delay_line import DIRECTIONS, PRIORITY, DelayLine, halves
from mininet_topos.network.emulation import PROBE
from mininet_topos.network.impairment import Impairment, bound_us
from mininet_topos.network.lab_network import Network

PACKETS = 1000
"""Of all links together, in each direction."""
LEAST_PACKETS = 10
"""Of a link and direction."""
INTERVAL_US = 500
WAIT_MS = 200
TIMEOUT_S = 120
ATTEMPTS = 3
NORMAL_REACH = 6
"""A delay with normal jitter is at most so many standard deviations from its mean (native/delay_line)."""
Measured = dict[str, Any]


def measured_delay(net: Network, folder: Path) -> Measured | None:
    """Measure the delay of every host's link; None if there is none, or if netem makes it.

    The result has, for `up` (from the host) and `down`, the packets and percentiles in us, and the reason why
    the delay is `wrong`, "" if it is right. A wrong one is measured again, at most ATTEMPTS times; `before`
    has the reasons of earlier attempts. `folder` gets the program's input. Raises LabError.
    """
    if net.links is None or net.links.means != DelayLine.means:
        return None
    wanted = net.layout.impairment
    before: list[str] = []
    for _ in range(ATTEMPTS):
        measured = _measure(net, wanted, folder)
        wrong = wrong_delay(wanted, measured)
        measured |= {"wrong": wrong, "before": list(before)}
        if not wrong:
            break
        before.append(wrong)
    return measured


def _measure(net: Network, wanted: Impairment, folder: Path) -> Measured:
    port_of = {port.towards: port for port in net.layout.ports}
    own = f"/proc/{os.getpid()}/ns/net"
    plan = folder / "probe.txt"
    plan.write_text(
        "".join(
            f"{host.name} /proc/{host.pid}/ns/net {host.defaultIntf().name} "
            f"{own} {net.ifname(port_of[host.name])}\n"
            for host in net.hosts
        )
    )
    count = max(LEAST_PACKETS, PACKETS // len(net.hosts))
    wait_ms = WAIT_MS + round(wanted.round_trip_ms)
    argv = (
        *(str(built(PROBE)), "--links", str(plan), "--count", str(count)),
        *("--interval-us", str(INTERVAL_US), "--wait-ms", str(wait_ms), "--priority", str(PRIORITY - 1)),
    )
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    if done.returncode:
        raise LabError(f"the delay of the links cannot be measured: {done.stderr.strip()}")
    answer = json.loads(done.stdout)
    return {name: answer[name] for name in DIRECTIONS}


def wrong_delay(wanted: Impairment, measured: Measured) -> str:
    """Return the reason why a measured delay is wrong; "" if it is right.

    In each direction at most one packet in a hundred may be later than stated by more than `bound_us` of the
    direction's delay, and one earlier by as much. If all of the delay is in one direction, its bound is that
    of both. Without a stated loss none may be missing. Without a stated delay the times do not matter.
    """
    for name, one in zip(DIRECTIONS, halves(wanted), strict=True):
        found = measured[name]
        if not found["received"]:
            return f"no packet arrived ({name})"
        if not one.loss_percent and found["received"] < found["sent"]:
            return f"{found['sent'] - found['received']} of {found['sent']} packets did not arrive ({name})"
        if not wanted.delay_ms:
            continue
        reach_us = 1000 * one.jitter_ms * (NORMAL_REACH if one.jitter == "normal" else 1)
        least_us = 0.0 if one.reorder_percent else max(0.0, 1000 * one.delay_ms - reach_us)
        most_us = 1000 * one.delay_ms + reach_us
        p99_us, bound = found["delay_us"]["p99"], bound_us(1000 * (one.delay_ms or wanted.delay_ms))
        if p99_us > most_us + bound:
            return f"{p99_us:.0f} us at the 99th percentile ({name}), want {most_us:.0f} + {bound:.0f}"
        if found["delay_us"]["p1"] < least_us - bound:
            return f"{found['delay_us']['p1']:.0f} us at the 1st percentile ({name}), want {least_us:.0f}"
    return ""
