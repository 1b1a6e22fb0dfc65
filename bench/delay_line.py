"""Measure the delay line: its share of one CPU, how late packets are, and the error of the delay end to end.

    python -m bench.delay_line [--links N] [--delay-ms D]... [--rate R] [--bytes B] [--seconds S] [--json]

The program `weir-delay-line` runs on one CPU. `weir-delay-probe` sends packets over all links, in both
directions in turn. "late": from the moment at which a packet was due to the end of the program's system call,
in us: p50, p99, p99.9, most. "error": the delay measured from end to end minus the stated one, in us: p50 and
p99 of the worse direction. "lost": packets that did not arrive, or that the counters do not explain.
"""

from __future__ import annotations

import os
from typing import Any

import click

from bench.figures import present
from bench.temporary import temporary_folder
from tests.support.lab.delay_bench import DelayBench, Report, balance, delay_bench

DIRECTIONS = ("up", "down")
UNEXPLAINED = ("unseen", "vanished", "ring_dropped", "refused", "too_large", "no_room")
PRIORITY, PROBE_PRIORITY = "50", "40"


def measure(bench: DelayBench, delay_ms: float, rate: int, size: int, seconds: float) -> dict[str, Any]:
    """Return the figures of one delay."""
    settings = f"delay_us={1000 * delay_ms:g}"
    bench.start(settings, settings, "--priority", PRIORITY)
    os.sched_setaffinity(bench.pid, {max(os.sched_getaffinity(0))})
    count = round(rate * seconds / bench.count / len(DIRECTIONS))
    options = ("--interval-us", str(round(1e6 / rate)), "--bytes", str(size), "--priority", PROBE_PRIORITY)
    before = bench.report()
    probed = bench.probe(count, *options, "--wait-ms", str(round(300 + delay_ms)))
    after = bench.report()
    bench.stop()
    errors = [
        {name: value - 1000 * delay_ms for name, value in probed[direction]["delay_us"].items()}
        for direction in DIRECTIONS
    ]
    sent = sum(probed[direction]["sent"] for direction in DIRECTIONS)
    late = after["lateness_us"]
    return {
        "delay_ms": delay_ms,
        "mbps": round(rate * size * 8 / 2e6, 1),
        "cpu_%": round((after["cpu_us"] - before["cpu_us"]) / (sent / rate) / 1e4, 1),
        "late": ", ".join(f"{late[name]:.0f}" for name in ("p50", "p99", "p999", "max")),
        "error": ", ".join(f"{max(error[name] for error in errors):.0f}" for name in ("p50", "p99")),
        "lost": sent - sum(probed[direction]["received"] for direction in DIRECTIONS) + unexplained(after),
    }


def unexplained(report: Report) -> int:
    """Return how many packets of a report were lost otherwise than on purpose."""
    directions = [link[name] for link in report["links"].values() for name in DIRECTIONS]
    return sum(abs(balance(one)) + sum(one[name] for name in UNEXPLAINED) for one in directions)


@click.command(help=__doc__)
@click.option("--links", default=30, show_default=True)
@click.option("--delay-ms", "delays_ms", type=float, multiple=True, default=(1.0, 7.5, 15.0, 50.0))
@click.option("--rate", default=16_667, show_default=True, help="Packets per second over all links.")
@click.option("--bytes", "size", default=1514, show_default=True)
@click.option("--seconds", default=5.0, show_default=True, help="For each delay.")
@click.option("--json", "as_json", is_flag=True)
def main(
    links: int, delays_ms: tuple[float, ...], rate: int, size: int, seconds: float, as_json: bool
) -> None:
    with temporary_folder() as folder, delay_bench(folder, links) as bench:
        rows = [measure(bench, delay_ms, rate, size, seconds) for delay_ms in delays_ms]
    title = f"delay line, {links} links, {rate} packets of {size} bytes per second"
    present(title, tuple(rows[0]), rows, as_json)


if __name__ == "__main__":
    main()
