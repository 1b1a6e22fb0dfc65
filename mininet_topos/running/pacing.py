"""Schemes with Adaptive Pacing: what the senders know of the bottleneck during a case."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from mininet_topos.experiments.experiment import Case
from mininet_topos.machine.commands import command, run
from mininet_topos.machine.programs import Program
from mininet_topos.machine.signals import undisturbed
from mininet_topos.network.lab_network import Network
from mininet_topos.running.scheme_programs import LOOPBACK, READY_S, RunningScheme, free_port

EVERY_S = 0.1
"""The follower's interval; the schemes sample the port counters as often."""


@contextmanager
def pacing(now: RunningScheme, net: Network, case: Case, folder: Path) -> Iterator[None]:
    """Let every sender know the bottleneck towards the root and the sinks, for this context.

    The scheme's ``flows_from`` decides who states n. `folder` gets the logs of the programs for that. Raises
    LabError, ProgramFailed.
    """
    if not now.scheme.paced:
        yield
        return
    pids = [word for host in (*net.workers, *net.senders) for word in ("--pid", str(host.pid))]
    receivers = sorted({host.IP() for host in (net.root, *net.sinks)})
    if now.scheme.flows_from == "network":
        with _following(now, net, folder, receivers, pids):
            yield
        return
    flows = case.workers + case.background if now.scheme.flows_from == "lab" else 0
    with _stated(net, flows, receivers, pids):
        yield


@contextmanager
def _stated(net: Network, flows: int, receivers: Sequence[str], pids: Sequence[str]) -> Iterator[None]:
    """State B, C and n; 0 flows: the hosts count. k is 1: the workers begin at once.

    If the lab is killed, the paths end with the congestion control.
    """
    path = (command("weir"), "transports", "path")
    shape = net.shapes[net.bottleneck_ifname]
    values = ("--flows", str(flows), "--buffer-bytes", str(shape.queue_bytes))
    rate = ("--rate-mbps", str(shape.rate_mbps))
    try:
        for receiver in receivers:
            run(*path, "set", receiver, *values, *rate, *pids)
        yield
    finally:
        with undisturbed():
            for receiver in receivers:
                run(*path, "remove", receiver, *pids)


@contextmanager
def _following(
    now: RunningScheme, net: Network, folder: Path, receivers: Sequence[str], pids: Sequence[str]
) -> Iterator[None]:
    """Run the dashboard and a follower for all senders, until the follower knows every receiver's port."""
    port = free_port()
    web = (command("weir"), "web", "--db", now.database_url, "--listen", f"{LOOPBACK}:{port}", "--no-yields")
    accounts = ("--accounts", str(folder / "accounts.json"), "--json")
    to = [word for receiver in receivers for word in ("--to", receiver)]
    follow = (command("weir"), "transports", "follow", "--controller", f"http://{LOOPBACK}:{port}")
    known = f"{len(receivers) * len(pids) // 2} paths to {len(receivers)} destinations"
    programs: list[Program] = []
    try:
        dashboard = Program("dashboard", (*web, *accounts), folder / "dashboard.log", net.state)
        programs.append(dashboard)
        dashboard.wait_ready(lambda: "listening" in dashboard.output(), "it does not listen", READY_S)
        argv = (*follow, "--every-s", str(EVERY_S), *to, *pids)
        follower = Program("follower", argv, folder / "follower.log", net.state)
        programs.append(follower)
        follower.wait_ready(lambda: known in follower.output(), "it does not know the ports", READY_S)
        yield
        follower.check()
    finally:
        with undisturbed():
            for program in reversed(programs):
                program.stop()
