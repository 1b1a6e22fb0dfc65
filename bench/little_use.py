"""Measure long flows beside flows that their application limits, and what happens when these do so no longer.

    python -m bench.little_use [--mixes A,B] [--rtts-ms A,B] [--schemes A,B] [--turns N]
        [--congestion-control NAME] [--json]

The network is the lab's star: one port of 100 Mbit/s with a queue of 150 KB, unpinned, with the kernel's
defaults. Only the congestion control is set. A mix is SLOWxMBPS+FAST: SLOW flows write blocks of 4 KB, MBPS
each, and FAST flows send all they can. SLOWxMBPSr+FAST: the receivers of the slow flows read so much, and
their senders send all they can. After 7 s nothing slows them any more, over the same connections.

The schemes take turns. "Mbit/s" is what the port sends from the third to the seventh second, with headers.
"drops" are what its queue refuses meanwhile, in all turns. "1st s" and "1st drops" are the rate and the drops
of the second after the change. "then" is the rate of the three seconds after that. Each rate is the median
and the least of the turns.
"""

from __future__ import annotations

import re
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from mininet.node import Node

from bench.figures import present
from bench.star_turns import star_experiment, take_turns
from bench.temporary import temporary_folder
from mininet_topos.experiments.experiment import Experiment
from mininet_topos.machine.programs import Program, wait_until
from mininet_topos.measurement.queue_probe import QueueProbe
from mininet_topos.measurement.queue_trace import QueueTrace
from mininet_topos.network.lab_network import Network, network_apart
from mininet_topos.network.nodes import inside
from mininet_topos.running.traffic_programs import SINK_PORT, Traffic

WARMUP_S, CHANGE_S, END_S = 3.0, 7.0, 11.0
LISTENING_S = 20.0
PACED_FLOW = str(Path(__file__).with_name("paced_flow.py"))
PACED_PORT = SINK_PORT + 1
MIX = re.compile(r"(\d+)x([\d.]+)(r?)\+(\d+)")
COLUMNS = ("mix", "RTT ms", "scheme", "turns", "Mbit/s", "drops", "1st s", "1st drops", "then")


@dataclass(frozen=True)
class Mix:
    """Flows of two kinds at one port: ``slow`` of ``slow_bps`` each, and ``fast`` that send all they can."""

    name: str
    slow: int
    slow_bps: float
    by_receiver: bool
    fast: int

    @classmethod
    def parse(cls, text: str) -> Mix:
        """Raises click.BadParameter if the text is not a mix."""
        found = MIX.fullmatch(text)
        if not found or not int(found[4]) or not float(found[2]):
            wanted = "SLOWxMBPS+FAST or SLOWxMBPSr+FAST, as 9x1+1"
            raise click.BadParameter(f"{text}; want {wanted}", param_hint="--mixes")
        return cls(text, int(found[1]), float(found[2]) * 1e6, bool(found[3]), int(found[4]))


@contextmanager
def flows(mix: Mix, net: Network, folder: Path) -> Iterator[None]:
    """The flows of a mix, from all senders of the network to the root."""
    traffic = Traffic(folder / "traffic.jsonl", net.state)
    programs: list[Program] = []

    def start(name: str, host: Node, *argv: object) -> Program:
        command = inside(host, sys.executable, PACED_FLOW, *map(str, argv))
        programs.append(Program(name, command, folder / f"{name}.log", net.state))
        return programs[-1]

    try:
        traffic.start(net.root, "sink", port=SINK_PORT)
        traffic.await_event("listening", 1, LISTENING_S)
        if mix.by_receiver:
            receiver = start("paced receiver", net.root, "receive", PACED_PORT, mix.slow_bps, CHANGE_S)
            if not wait_until(lambda: "listening" in receiver.output(), LISTENING_S):
                raise receiver.failure("it does not listen")
        for number, host in enumerate(net.senders):
            slow = number < mix.slow
            port = PACED_PORT if slow and mix.by_receiver else SINK_PORT
            rate_bps = mix.slow_bps if slow and not mix.by_receiver else 0
            start(f"sender {number}", host, "send", net.root.IP(), port, rate_bps, CHANGE_S)
        yield
        for program in programs:
            program.check()
    finally:
        for program in programs:
            program.stop()
        traffic.stop()


def figures(trace: QueueTrace, begun_ns: int) -> dict[str, float]:
    """The figures of a turn from its trace."""

    def rate_mbps(from_s: float, to_s: float) -> float:
        return float(trace.sent_bytes[at(from_s) : at(to_s)].sum() * 8 / (to_s - from_s) / 1e6)

    def drops(from_s: float, to_s: float) -> int:
        return int(trace.drops[at(from_s) : at(to_s)].sum())

    def at(second: float) -> int:
        return round((begun_ns - trace.start_ns) / 1e6 + second * 1000)

    return {
        "Mbit/s": rate_mbps(WARMUP_S, CHANGE_S),
        "drops": drops(WARMUP_S, CHANGE_S),
        "1st s": rate_mbps(CHANGE_S, CHANGE_S + 1),
        "1st drops": drops(CHANGE_S, CHANGE_S + 1),
        "then": rate_mbps(CHANGE_S + 1, END_S),
    }


def one_turn(mix: Mix, net: Network, folder: Path, probe: QueueProbe) -> dict[str, float]:
    """One run of a mix, with the scheme's programs running."""
    with probe.watching(net.bottleneck_ifname) as trace, flows(mix, net, folder):
        begun_ns = time.monotonic_ns()
        time.sleep(END_S)
    return figures(trace, begun_ns)


def row(found: Sequence[dict[str, float]]) -> dict[str, Any]:
    """The figures of all turns of a scheme."""
    shown: dict[str, Any] = {"turns": len(found)}
    for name in ("Mbit/s", "1st s", "then"):
        values = [one[name] for one in found]
        shown[name] = f"{statistics.median(values):.1f}; {min(values):.1f}"
    return shown | {name: sum(one[name] for one in found) for name in ("drops", "1st drops")}


def measure(
    experiment: Experiment, mix: Mix, turns: int, probe: QueueProbe, folder: Path
) -> list[dict[str, Any]]:
    """Run all turns of a mix on one network. Returns a row for each scheme."""
    rtt_ms = 2 * experiment.delay_ms
    with network_apart(experiment.layout, experiment.pinned) as net:
        found = take_turns(experiment, turns, net, folder, lambda own: one_turn(mix, net, own, probe))
    return [{"mix": mix.name, "RTT ms": rtt_ms, "scheme": scheme, **row(of)} for scheme, of in found.items()]


@click.command(help=__doc__)
@click.option("--mixes", default="9x1+1,4x10+1,30x1+1", show_default=True)
@click.option("--rtts-ms", default="0,10", show_default=True, help="RTTs of the delay line; 0 has none.")
@click.option("--schemes", default="plain,sccp-auto,sdtcp+sccp", show_default=True)
@click.option("--turns", default=3, show_default=True, help="Turns of each scheme.")
@click.option("--congestion-control", default="cubic", show_default=True)
@click.option("--json", "as_json", is_flag=True)
def main(mixes: str, rtts_ms: str, schemes: str, turns: int, congestion_control: str, as_json: bool) -> None:
    rows: list[dict[str, Any]] = []
    with temporary_folder() as folder, QueueProbe() as probe:
        for mix in map(Mix.parse, mixes.split(",")):
            for rtt_ms in map(float, rtts_ms.split(",")):
                senders = mix.slow + mix.fast
                experiment = star_experiment(
                    "little-use", mix.name, senders, schemes, rtt_ms, congestion_control
                )
                rows += measure(experiment, mix, turns, probe, folder)
    present(f"flows of {congestion_control} beside flows of their applications", COLUMNS, rows, as_json)


if __name__ == "__main__":
    main()
