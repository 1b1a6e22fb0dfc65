"""Measure how fast long flows follow a change: flows that end or begin, and another rate or RTT.

    python -m bench.agility [--changes A,B] [--rtts-ms A,B] [--schemes A,B] [--turns N]
        [--congestion-control NAME] [--json]

The network is the lab's star: one port of 100 Mbit/s with a queue of 150 KB, unpinned, with flows of iperf3
and the kernel's defaults. Only the congestion control is set, and a host keeps at most 16 KB that it has
not sent (tcp_notsent_lowat), so that a client that ends also stops sending. The changes:

    leave       20 of 21 flows end; the change counts from the last packet of theirs that leaves the port
    join        20 flows join one
    slower      the port's rate falls from 100 to 20 Mbit/s, with 4 flows
    faster      the port's rate rises from 20 to 100 Mbit/s, with 4 flows
    longer      the RTT rises by 9 ms, with one flow
    longer-4    the same, with 4 flows

The schemes take turns. "drops" are all that the port's queue refused within 3 s after the change, in all
turns. "full ms" is the time from the change to the first 100 ms in which the port carries 0.98 of its rate.
"1st s" and "2nd s" are the parts of its rate that the port carries in the first and the second second after
the change. "window ms" is the time until the remaining flow gets a window that is as large as rate x base
RTT and one segment, or as the receiver offers: a receiver enlarges its buffer only after a flow has become
faster. "allowed" is 2 RTT + 5 ms. Each of these columns gives the median and the worst of the turns. Needs
iperf3 and tcpdump.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import statistics
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from bench.figures import present
from bench.iperf_flows import clients, servers
from bench.star_turns import RATE_BPS, star_experiment, take_turns
from bench.temporary import temporary_folder
from mininet_topos.errors import LabError
from mininet_topos.experiments.experiment import Experiment
from mininet_topos.machine.commands import run
from mininet_topos.machine.programs import Program
from mininet_topos.measurement.queue_probe import QueueProbe
from mininet_topos.measurement.queue_trace import QueueTrace
from mininet_topos.network.lab_network import Network, network_apart
from mininet_topos.network.nodes import inside
from mininet_topos.network.shaping import change_rate

SLOW_BPS = 20_000_000
WARMUP_S, AFTER_S, SETTLE_S = 5.0, 3.0, 0.5
FULL, FULL_SPAN_MS = 0.98, 100
MSS_BYTES = 1448
UNSENT_BYTES = 16_384
LONGER_MS = 9.0
"""By how much the RTT rises."""
COLUMNS = (
    "change",
    "RTT ms",
    "scheme",
    "turns",
    "drops",
    "full ms",
    "1st s",
    "2nd s",
    "window ms",
    "allowed",
)
ACK = re.compile(r"^(\d+\.\d+) IP \S+ > \S+\.(\d+): Flags \[(\S+)\],.* win (\d+)")
WINDOW_SCALE = re.compile(r"wscale (\d+)")


@dataclass
class Turn:
    """One run of a change under a scheme: what the change needs, and when it happened."""

    net: Network
    folder: Path
    flows: list[Program]
    stack: ExitStack
    rate_bps: int
    changed_ns: int = 0


@dataclass(frozen=True)
class Change:
    """A change, and the flows and the rate before it.

    ``flows`` are the hosts that may send, ``first`` how many send before the change.
    """

    flows: int
    first: int
    make: Callable[[Turn], None]
    rate_bps: int = RATE_BPS


def leave(turn: Turn) -> None:
    for program in turn.flows[1:]:
        os.kill(program.pid, signal.SIGKILL)


def join(turn: Turn) -> None:
    turn.stack.enter_context(clients(turn.net, turn.net.senders[1:], turn.folder))


def slower(turn: Turn) -> None:
    turn.rate_bps = SLOW_BPS
    change_rate(turn.net.bottleneck_ifname, SLOW_BPS)


def faster(turn: Turn) -> None:
    turn.rate_bps = RATE_BPS
    change_rate(turn.net.bottleneck_ifname, RATE_BPS)


def longer(turn: Turn) -> None:
    if turn.net.links is None:
        raise LabError("this network has no delay line; give --rtts-ms above 0")
    before = turn.net.layout.impairment
    turn.net.links.change(replace(before, delay_ms=before.delay_ms + LONGER_MS / 2))


CHANGES = {
    "leave": Change(21, 21, leave),
    "join": Change(21, 1, join),
    "slower": Change(4, 4, slower),
    "faster": Change(4, 4, faster, SLOW_BPS),
    "longer": Change(1, 1, longer),
    "longer-4": Change(4, 4, longer),
}


class Capture:
    """The headers of packets at an interface, while the context lasts."""

    def __init__(self, turn: Turn, name: str, argv: Sequence[str]) -> None:
        self._path = turn.folder / f"{name}.pcap"
        wanted = ("-s", "96", "-B", "16384", "-w", str(self._path), "tcp")
        self._program = Program("tcpdump", (*argv, *wanted), turn.folder / f"{name}.log", turn.net.state)
        self._program.wait_ready(lambda: "listening on" in self._program.output(), "it does not listen")

    def lines(self, only: str) -> list[str]:
        """End the capture. Returns the packets that a filter selects, as tcpdump prints them."""
        self._program.stop()
        return run("tcpdump", "-tt", "-nn", "-r", str(self._path), only).splitlines()


def ended_ns(at_port: Capture, stays: str) -> int:
    """The time of the last full packet of the flows that ended, in ns since the epoch."""
    lines = at_port.lines(f"greater 1000 and not src host {stays}")
    return round(float(lines[-1].split()[0]) * 1e9)


def windows(capture: Capture, host: str) -> tuple[str, list[tuple[float, int]]]:
    """The flow of the host with most ACKs, by its port, and their times in s and windows in bytes."""
    acks = [match for line in capture.lines(f"dst host {host}") if (match := ACK.match(line)) is not None]
    port = Counter(ack[2] for ack in acks).most_common(1)[0][0]  # the flow's, not that of iperf3's control
    scale, found = 0, []
    for ack in (ack for ack in acks if ack[2] == port):
        if "S" in ack[3]:
            scale = int(WINDOW_SCALE.findall(ack.string)[0])
        else:
            found.append((float(ack[1]), int(ack[4]) << scale))
    return port, found


def sufficed_ms(at_host: Capture, at_root: Capture, host: str, from_ns: int, needed_bytes: float) -> float:
    """How long after a time the first window reached the host that is large enough; the end if none was.

    A window is also large enough if the switch leaves it as the receiver offers it.
    """
    (port, received), (same_port, offered) = windows(at_host, host), windows(at_root, host)
    if port != same_port:
        raise LabError(f"most ACKs to {host} are of port {port} at the host, but of {same_port} at the root")
    times, small_ms = [at_s for at_s, _ in offered], 0.0
    for at_s, window in received:
        after_ms = at_s * 1e3 - from_ns / 1e6
        offer = offered[max(bisect_right(times, at_s) - 1, 0)][1]
        if after_ms >= 0 and window >= min(needed_bytes, offer):
            return small_ms and after_ms
        small_ms = after_ms
    return AFTER_S * 1000


def base_rtt_ms(net: Network) -> float:
    """The least RTT of a full packet while no other traffic passes."""
    answer = net.senders[0].cmd(f"ping -q -s 1400 -i 0.02 -c 30 {net.root.IP()}")
    return float(re.findall(r"= ([\d.]+)/", answer)[0])


def figures(trace: QueueTrace, turn: Turn) -> dict[str, float]:
    """The figures of a turn from its trace."""
    at = (turn.changed_ns - trace.start_ns) // 1_000_000
    sent = trace.sent_bytes[at : at + round(AFTER_S * 1000)] * 8000 / turn.rate_bps
    full = next(
        (ms for ms in range(len(sent) - FULL_SPAN_MS) if sent[ms : ms + FULL_SPAN_MS].mean() >= FULL),
        round(AFTER_S * 1000),
    )
    return {
        "drops": int(trace.drops[at : at + round(AFTER_S * 1000)].sum()),
        "full ms": full,
        "1st s": float(sent[:1000].mean()),
        "2nd s": float(sent[1000:2000].mean()),
    }


def one_turn(change: Change, net: Network, folder: Path, probe: QueueProbe) -> dict[str, float]:
    """One run of a change, with the scheme's programs running."""
    rtt_ms = base_rtt_ms(net)
    stays = net.senders[0]
    with ExitStack() as stack:
        turn = Turn(net, folder, [], stack, change.rate_bps)
        captures = []
        if change.make is leave:
            captures.append(Capture(turn, "port", ("tcpdump", "-i", net.bottleneck_ifname)))
            captures += [
                Capture(turn, host.name, inside(host, "tcpdump", "-i", str(host.defaultIntf().name)))
                for host in (stays, net.root)
            ]
        stack.enter_context(servers(net, folder))
        with probe.watching(net.bottleneck_ifname) as trace:
            turn.flows = stack.enter_context(clients(net, net.senders[: change.first], folder))
            time.sleep(WARMUP_S)
            epoch_ns = time.time_ns() - time.monotonic_ns()
            turn.changed_ns = time.monotonic_ns()
            change.make(turn)
            time.sleep(AFTER_S + SETTLE_S)
        turn.flows[0].check()
        window: dict[str, float] = {}
        if captures:
            gone_ns = ended_ns(captures[0], stays.IP())
            needed = turn.rate_bps / 8e3 * rtt_ms + MSS_BYTES
            window = {
                "window ms": sufficed_ms(captures[1], captures[2], stays.IP(), gone_ns, needed),
                "allowed": 2 * rtt_ms + 5,
            }
            turn.changed_ns = gone_ns - epoch_ns
    return figures(trace, turn) | window


def row(found: Sequence[dict[str, float]]) -> dict[str, Any]:
    """The figures of all turns of a change under a scheme: the median and the worst."""
    shown: dict[str, Any] = {"turns": len(found), "drops": sum(one["drops"] for one in found)}
    for name, worst, digits in (
        ("full ms", max, 0),
        ("1st s", min, 3),
        ("2nd s", min, 3),
        ("window ms", max, 1),
    ):
        if values := [one[name] for one in found if name in one]:
            shown[name] = f"{statistics.median(values):.{digits}f}; {worst(values):.{digits}f}"
    if allowed := [one["allowed"] for one in found if "allowed" in one]:
        shown["allowed"] = f"{statistics.median(allowed):.1f}"
    return shown


def measure(
    experiment: Experiment, name: str, turns: int, probe: QueueProbe, folder: Path
) -> list[dict[str, Any]]:
    """Run all turns of a change on one network. Returns a row for each scheme."""
    change, rtt_ms = CHANGES[name], 2 * experiment.delay_ms
    with network_apart(experiment.layout, experiment.pinned) as net:

        def prepare() -> None:
            if net.links is not None:
                net.links.change(net.layout.impairment)
            change_rate(net.bottleneck_ifname, change.rate_bps)

        for host in net.hosts:
            host.cmd(f"sysctl -q -w net.ipv4.tcp_notsent_lowat={UNSENT_BYTES}")
        found = take_turns(
            experiment, turns, net, folder, lambda own: one_turn(change, net, own, probe), prepare
        )
    return [{"change": name, "RTT ms": rtt_ms, "scheme": scheme, **row(of)} for scheme, of in found.items()]


@click.command(help=__doc__)
@click.option("--changes", default=",".join(CHANGES), show_default=True)
@click.option("--rtts-ms", default="0,10", show_default=True, help="RTTs of the delay line; 0 has none.")
@click.option("--schemes", default="plain,sccp-auto,sdtcp+sccp", show_default=True)
@click.option("--turns", default=3, show_default=True, help="Turns of each scheme.")
@click.option("--congestion-control", default="cubic", show_default=True)
@click.option("--json", "as_json", is_flag=True)
def main(
    changes: str, rtts_ms: str, schemes: str, turns: int, congestion_control: str, as_json: bool
) -> None:
    if missing := [name for name in ("iperf3", "tcpdump") if not shutil.which(name)]:
        raise click.ClickException(f"missing: {', '.join(missing)}; install it with apt-get")
    rows: list[dict[str, Any]] = []
    with temporary_folder() as folder, QueueProbe() as probe:
        for name in changes.split(","):
            if name not in CHANGES:
                raise click.BadParameter(f"{name}; want some of {', '.join(CHANGES)}", param_hint="--changes")
            for rtt_ms in map(float, rtts_ms.split(",")):
                if rtt_ms > 0 or CHANGES[name].make is not longer:  # without a delay line nothing to change
                    flows = CHANGES[name].flows
                    experiment = star_experiment("agility", name, flows, schemes, rtt_ms, congestion_control)
                    rows += measure(experiment, name, turns, probe, folder)
    present(f"changes during long flows of {congestion_control}", COLUMNS, rows, as_json)


if __name__ == "__main__":
    main()
