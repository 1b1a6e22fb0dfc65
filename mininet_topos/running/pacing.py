"""Schemes with Adaptive Pacing: what the senders know of the bottleneck during a case."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mininet_topos.experiments.experiment import Case
from mininet_topos.experiments.schemes import Scheme
from mininet_topos.machine.commands import command, run
from mininet_topos.machine.signals import undisturbed
from mininet_topos.network.lab_network import Network


@contextmanager
def pacing(scheme: Scheme, net: Network, case: Case) -> Iterator[None]:
    """State the bottleneck towards the root and the sinks at every sender, for this context. Raises LabError.

    n is the number of the case's workers and long flows, so that no switch has to count them. k is 1: the
    workers begin at once. If the lab is killed, the paths end with the congestion control.
    """
    if not scheme.paced:
        yield
        return
    pids = [word for host in (*net.workers, *net.senders) for word in ("--pid", str(host.pid))]
    path = (command("weir"), "transports", "path")
    shape = net.shapes[net.bottleneck_ifname]
    values = ("--flows", str(case.workers + case.background), "--buffer-bytes", str(shape.queue_bytes))
    rate = ("--rate-mbps", str(shape.rate_mbps))
    receivers = {host.IP() for host in (net.root, *net.sinks)}
    try:
        for receiver in receivers:
            run(*path, "set", receiver, *values, *rate, *pids)
        yield
    finally:
        with undisturbed():
            for receiver in receivers:
                run(*path, "remove", receiver, *pids)
