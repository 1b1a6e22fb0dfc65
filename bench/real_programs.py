"""Measure queries of unchanged programs under several schemes: curl asks an nginx on every worker at once.

    python -m bench.real_programs [--workers N] [--size BYTES] [--long N] [--schemes A,B] [--turns N]
        [--congestion-control NAME] [--json]

The network is the lab's star: one port of 100 Mbit/s with a queue of 150 KB. Hosts have the defaults of the
kernel except for the congestion control, and no CPU is reserved for anything. One curl asks all workers,
each over a new connection, and a query takes as long as its slowest response. With --long, iperf3 sends so
many long flows to the same port meanwhile. The schemes take turns, with --queries queries each; every query
is counted. "x ideal" is the time of a query divided by the time of its bytes with their headers on the
link. "other Mbit/s" is the rate of the other packets on the link, with headers. Needs nginx, curl 7.68
and iperf3.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import click

from bench.figures import present, quantile
from bench.iperf_flows import long_flows
from mininet_topos.experiments.experiment import Case, Experiment
from mininet_topos.experiments.schemes import scheme_of
from mininet_topos.machine.programs import Program
from mininet_topos.network.lab_network import Network, network_apart
from mininet_topos.network.nodes import inside
from mininet_topos.network.shaping import read_queue
from mininet_topos.running.scheme_programs import running

HTTP_PORT = 8080
START_S, QUERY_S, GAP_S = 20.0, 60.0, 0.1
COLUMNS = ("scheme", "queries", "x ideal p50", "p99", "longest", "drops", "other Mbit/s")
NGINX = """daemon off; master_process off; error_log {folder}/nginx-{name}.log; pid {folder}/{name}.pid;
events {{ worker_connections 256; }}
http {{ access_log off; client_body_temp_path {folder}/{name}-body; proxy_temp_path {folder}/{name}-proxy;
  fastcgi_temp_path {folder}/{name}-f; uwsgi_temp_path {folder}/{name}-u; scgi_temp_path {folder}/{name}-s;
  server {{ listen {port}; root {folder}/www; }} }}
"""


def succeeds(*argv: str) -> bool:
    """Whether a command ends with status 0."""
    return subprocess.run(argv, check=False).returncode == 0


@contextmanager
def servers(net: Network, folder: Path, size_bytes: int) -> Iterator[None]:
    """An nginx on every worker, with one file."""
    (folder / "www").mkdir()
    (folder / "www" / "response").write_bytes(bytes(size_bytes))
    programs = []
    try:
        for host in net.workers:
            config = folder / f"{host.name}.conf"
            config.write_text(NGINX.format(folder=folder, name=host.name, port=HTTP_PORT))
            argv = inside(host, "nginx", "-c", str(config), "-p", str(folder))
            programs.append(Program(f"nginx of {host.name}", argv, folder / "nginx.log", net.state))
        for host, program in zip(net.workers, programs, strict=True):
            url = f"http://127.0.0.1:{HTTP_PORT}/response"  # without a controller no host reaches another
            answers = partial(succeeds, *inside(host, "curl", "-s", "-o", "/dev/null", url))
            program.wait_ready(answers, "it does not answer", START_S)
        yield
    finally:
        for program in programs:
            program.stop()


def query_s(net: Network, config: Path) -> float:
    """Ask all workers at once. Returns the time of the slowest response."""
    options = ("-sS", "--parallel", "--parallel-immediate", "--parallel-max", "300", "-K", str(config))
    argv = inside(net.root, "curl", *options, "-w", "%{http_code} %{time_total}\\n")
    done = subprocess.run(argv, capture_output=True, text=True, timeout=QUERY_S, check=True)
    answers = [line.split() for line in done.stdout.splitlines()]
    if len(answers) != len(net.workers) or any(code != "200" for code, _ in answers):
        raise click.ClickException(f"a worker did not answer: {done.stdout}{done.stderr}")
    return max(float(took_s) for _, took_s in answers)


def turn(net: Network, config: Path, queries: int) -> dict[str, Any]:
    """One turn of a scheme: the times of its queries, drops, and the bytes that left meanwhile."""
    began, before = time.monotonic(), read_queue(net.bottleneck_ifname)
    times_s = []
    for _ in range(queries):
        times_s.append(query_s(net, config))
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
        "p99": round(quantile(factors, 0.99), 3),
        "longest": round(max(factors), 3),
        "drops": sum(one["drops"] for one in turns),
        "other Mbit/s": round(rate, 1) if case.background else None,
    }


def measure(experiment: Experiment, turns: int, folder: Path) -> list[dict[str, Any]]:
    """Run all turns on one network. Returns a row for each scheme."""
    case = experiment.cases[0]
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in experiment.schemes}
    with network_apart(experiment.layout, experiment.pinned) as net, servers(net, folder, case.size_bytes):
        for host in net.hosts:
            host.set_congestion_control(experiment.congestion_control)
        config = folder / "query.curl"
        urls = (
            f'url = "http://{host.IP()}:{HTTP_PORT}/response"\noutput = "/dev/null"\n' for host in net.workers
        )
        config.write_text("".join(urls))
        for number, name in zip(range(turns * len(found)), cycle(experiment.schemes), strict=False):
            scheme = experiment.configured(scheme_of(name))
            own = folder / f"{name}-{number}"
            programs = running(scheme, net, own, congestion_control=experiment.congestion_control)
            with programs, long_flows(net, folder):
                found[name].append(turn(net, config, case.queries))
    return [row(name, of_scheme, experiment) for name, of_scheme in found.items()]


@click.command(help=__doc__)
@click.option("--workers", default=45, show_default=True)
@click.option("--size", "size_bytes", default=24_000, show_default=True, help="Bytes of a response.")
@click.option("--long", "background", default=0, show_default=True, help="Long flows beside the queries.")
@click.option("--schemes", default="plain,rto5,sccp-auto,sdtcp+sccp", show_default=True)
@click.option("--queries", default=10, show_default=True, help="Queries of a turn.")
@click.option("--turns", default=3, show_default=True, help="Turns of each scheme.")
@click.option("--congestion-control", default="cubic", show_default=True)
@click.option("--json", "as_json", is_flag=True)
def main(
    workers: int,
    size_bytes: int,
    background: int,
    schemes: str,
    queries: int,
    turns: int,
    congestion_control: str,
    as_json: bool,
) -> None:
    if missing := [name for name in ("nginx", "curl", "iperf3") if not shutil.which(name)]:
        raise click.ClickException(f"missing: {', '.join(missing)}; install it with apt-get")
    case = Case("real", "real programs", workers, size_bytes, background, queries, fresh=True)
    experiment = Experiment(
        name="real-programs",
        cases=(case,),
        schemes=tuple(schemes.split(",")),
        bandwidth_mbps=100,
        queue_bytes=150_000,
        pinned=False,
        congestion_control=congestion_control,
    )
    with tempfile.TemporaryDirectory() as folder:
        title = f"{workers} workers x {size_bytes} bytes beside {background} long flows, {congestion_control}"
        present(title, COLUMNS, measure(experiment, turns, Path(folder)), as_json)


if __name__ == "__main__":
    main()
