"""Measure queries of unchanged programs under several schemes: all workers are asked at once.

    python -m bench.real_programs [--service nginx|memcached] [--workers N] [--size BYTES] [--long N]
        [--schemes A,B] [--turns N] [--congestion-control NAME] [--json]

The network is the lab's star: one port of 100 Mbit/s with a queue of 150 KB. Hosts have the defaults of the
kernel except for the congestion control, and no CPU is reserved for anything. Every worker runs the service.
One curl asks each nginx over a new connection. A multi-get asks each memcached over a standing connection.
A query takes as long as its slowest response. With --long, iperf3 sends so many long flows to the same port
meanwhile. The schemes take turns, with --queries queries each; every query is counted. "x ideal" is the time
of a query divided by the time of its bytes with their headers on the link. "other Mbit/s" is the rate of the
other packets on the link, with headers. Needs nginx and curl 7.68, or memcached, and iperf3.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import click

from bench.figures import present
from bench.iperf_flows import long_flows
from bench.real_services import SERVICES, Query, Service
from bench.star_turns import refuse_transports
from bench.temporary import temporary_folder
from mininet_topos.experiments.experiment import Case, Experiment
from mininet_topos.experiments.schemes import scheme_of
from mininet_topos.network.lab_network import Network, network_apart
from mininet_topos.network.shaping import read_queue
from mininet_topos.results.summary import percentile
from mininet_topos.running.scheme_programs import running

GAP_S = 0.1
COLUMNS = ("scheme", "queries", "x ideal p50", "p99", "longest", "drops", "other Mbit/s")


def turn(net: Network, query_s: Query, queries: int) -> dict[str, Any]:
    """One turn of a scheme: the times of its queries, drops, and the bytes that left meanwhile."""
    began, before = time.monotonic(), read_queue(net.bottleneck_ifname)
    times_s = []
    for _ in range(queries):
        times_s.append(query_s())
        time.sleep(GAP_S)
    after = read_queue(net.bottleneck_ifname)
    return {
        "times_s": times_s,
        "drops": after.drops - before.drops,
        "bytes": after.sent_bytes - before.sent_bytes,
        "seconds": time.monotonic() - began,
    }


def row(name: str, turns: Sequence[dict[str, Any]], experiment: Experiment) -> dict[str, Any]:
    """The figures of a scheme over all its turns."""
    case = experiment.cases[0]
    ideal_s = case.ideal_ms(experiment.bandwidth_mbps) / 1000
    factors = [took_s / ideal_s for one in turns for took_s in one["times_s"]]
    answers = len(factors) * ideal_s * experiment.bandwidth_mbps * 125_000
    rate = 8e-6 * (sum(one["bytes"] for one in turns) - answers) / sum(one["seconds"] for one in turns)
    return {
        "scheme": name,
        "queries": len(factors),
        "x ideal p50": round(statistics.median(factors), 3),
        "p99": round(percentile(factors, 99), 3),
        "longest": round(max(factors), 3),
        "drops": sum(one["drops"] for one in turns),
        "other Mbit/s": round(rate, 1) if case.background else None,
    }


def measure(experiment: Experiment, service: Service, turns: int, folder: Path) -> list[dict[str, Any]]:
    """Run all turns on one network. Returns a row for each scheme."""
    refuse_transports(experiment.schemes)
    case = experiment.cases[0]
    size = case.size_bytes
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in experiment.schemes}
    with network_apart(experiment.layout, experiment.pinned) as net, service.servers(net, folder, size):
        for host in net.hosts:
            host.set_route(congestion_control=experiment.congestion_control)
        for number, name in zip(range(turns * len(found)), cycle(experiment.schemes), strict=False):
            scheme = experiment.configured(scheme_of(name))
            own = folder / f"{name}-{number}"
            programs = running(scheme, net, own, congestion_control=experiment.congestion_control)
            with programs, long_flows(net, folder), service.client(net, folder, size) as query_s:
                found[name].append(turn(net, query_s, case.queries))
    return [row(name, of_scheme, experiment) for name, of_scheme in found.items()]


@click.command(help=__doc__)
@click.option("--service", type=click.Choice(tuple(SERVICES)), default="nginx", show_default=True)
@click.option("--workers", default=45, show_default=True)
@click.option("--size", "size_bytes", default=24_000, show_default=True, help="Bytes of a response.")
@click.option("--long", "background", default=0, show_default=True, help="Long flows beside the queries.")
@click.option("--schemes", default="plain,rto5,sccp-auto,sdtcp+sccp", show_default=True)
@click.option("--queries", default=10, show_default=True, help="Queries of a turn.")
@click.option("--turns", default=3, show_default=True, help="Turns of each scheme.")
@click.option("--congestion-control", default="cubic", show_default=True)
@click.option("--json", "as_json", is_flag=True)
def main(
    service: str,
    workers: int,
    size_bytes: int,
    background: int,
    schemes: str,
    queries: int,
    turns: int,
    congestion_control: str,
    as_json: bool,
) -> None:
    asked = SERVICES[service]
    if missing := [name for name in (*asked.needs, "iperf3") if not shutil.which(name)]:
        raise click.ClickException(f"missing: {', '.join(missing)}; install it with apt-get")
    case = Case("real", "real programs", workers, size_bytes, background, queries, fresh=asked.fresh)
    experiment = Experiment(
        name="real-programs",
        cases=(case,),
        schemes=tuple(schemes.split(",")),
        bandwidth_mbps=100,
        queue_bytes=150_000,
        pinned=False,
        congestion_control=congestion_control,
    )
    with temporary_folder() as folder:
        load = f"{workers} workers x {size_bytes} bytes beside {background} long flows"
        title = f"{service}: {load}, {congestion_control}"
        present(title, COLUMNS, measure(experiment, asked, turns, folder), as_json)


if __name__ == "__main__":
    main()
