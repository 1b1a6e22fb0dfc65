"""Compare the goodput and CPU of DCUDP, UDT and TCP on a veth pair between two namespaces.

    python -m bench.dcudp_speed [--rate-mbps N] [--one-core] [--no-offloads] [--realtime]

The three run in turn, every other round backwards. DCUDP is `weir dcudp bench` with a key, so it encrypts.
UDT is Debian's libudt (`weir-traffic-udt`) and TCP is iperf3; neither encrypts. The sender has one core and
the receiver another, or both share one (--one-core). "mbps" is the payload that the receiver got, and
"of_tcp" its ratio to TCP's of the same round. "sender_cpu" and "receiver_cpu" are CPU seconds per GB: of
DCUDP's threads, and of UDT's and iperf3's processes. The kernel counts what it does for the receiver in an
interrupt as the sender's. UDT and TCP begin a second before they are measured, DCUDP is measured from its
first packet. --no-offloads makes the kernel compute checksums and divide no large packets. --realtime
keeps other work off the cores (SCHED_FIFO), which slows that work.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner

from bench import sandbox
from bench.figures import Spread, cpu_s, present
from dcudp.cli import dcudp as dcudp_command
from weir_base.paths import artifact

SENDER, RECEIVER = "h1", "h2"
SENDER_ADDRESS, ADDRESS, PORT = "10.0.0.1", "10.0.0.2", 9777
WARM_UP_S = 1
OFFLOADS = ("tx", "tso", "gso", "gro")


@dataclass(frozen=True, slots=True)
class Run:
    """One transfer. CPU is in seconds per GB of payload."""

    mbps: float
    sender_cpu: float
    receiver_cpu: float

    @classmethod
    def of(cls, payload_bytes: float, seconds: float, sender_cpu_s: float, receiver_cpu_s: float) -> Run:
        gigabytes = payload_bytes / 1e9
        return cls(payload_bytes * 8 / seconds / 1e6, sender_cpu_s / gigabytes, receiver_cpu_s / gigabytes)


def link_hosts(offloads: bool) -> None:
    """Two namespaces with a veth pair."""
    for host in (SENDER, RECEIVER):
        sandbox.run("ip", "netns", "add", host)
    peer = ("peer", "name", "eth0", "netns", RECEIVER)
    sandbox.run("ip", "link", "add", "eth0", "netns", SENDER, "type", "veth", *peer)
    for host, address in ((SENDER, SENDER_ADDRESS), (RECEIVER, ADDRESS)):
        sandbox.run("ip", "-n", host, "addr", "add", f"{address}/24", "dev", "eth0")
        sandbox.run("ip", "-n", host, "link", "set", "eth0", "up")
        if not offloads:
            switches = [word for name in OFFLOADS for word in (name, "off")]
            sandbox.run("ip", "netns", "exec", host, "ethtool", "-K", "eth0", *switches)


@dataclass(frozen=True, slots=True)
class Ends:
    """The two ends of a run, and what holds for both."""

    rate_mbps: int
    seconds: int
    one_core: bool
    realtime: bool
    key: Path

    def at_sender(self, *argv: str) -> list[str]:
        return self._pinned(SENDER, "0", argv)

    def at_receiver(self, *argv: str) -> list[str]:
        return self._pinned(RECEIVER, "0" if self.one_core else "1", argv)

    def _pinned(self, host: str, core: str, argv: Sequence[str]) -> list[str]:
        first = ("chrt", "-f", "10") if self.realtime else ()
        return ["ip", "netns", "exec", host, *first, "taskset", "-c", core, *argv]


@contextlib.contextmanager
def serving(argv: list[str], ready: str) -> Iterator[subprocess.Popen[str]]:
    """A server until the end of the block, once it has written a line with `ready`."""
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        try:
            while ready not in (line := process.stdout.readline()):
                if not line:
                    raise click.ClickException(f"{' '.join(argv)} ended before it listened")
            yield process
        finally:
            process.terminate()
            process.communicate()


def dcudp_run(ends: Ends) -> Run:
    """A measurement by `weir dcudp bench`."""
    weir = (sys.executable, "-m", "weir", "dcudp", "bench", "--json", "--key-file", str(ends.key))
    address, rate = f"{ADDRESS}:{PORT}", str(ends.rate_mbps)
    with serving(ends.at_receiver(*weir, "--listen", address), "listening"):
        sender = (*weir, address, "--link-mbps", rate, "--seconds", str(ends.seconds))
        said = json.loads(sandbox.run(*ends.at_sender(*sender)))
    return Run.of(said["bytes"], said["seconds"], said["sender_cpu_seconds"], said["receiver_cpu_seconds"])


def udt_run(ends: Ends) -> Run:
    """An endless flow of weir-traffic-udt, without its first second."""
    program, port = str(artifact("weir-traffic-udt")), ("--port", str(PORT))
    sink = ends.at_receiver(program, "sink", "--host", RECEIVER, *port)
    rate = ("--rate-bps", str(ends.rate_mbps * 1_000_000))
    source = ends.at_sender(program, "source", "--host", SENDER, *port, *rate, "--to", ADDRESS)
    with (
        serving(sink, "listening") as receiver,
        subprocess.Popen(source, stdout=subprocess.DEVNULL) as sender,
    ):
        assert receiver.stdout is not None  # noqa: S101 - it is a pipe
        time.sleep(WARM_UP_S)
        before, begun_ns = (cpu_s(sender.pid), cpu_s(receiver.pid)), time.monotonic_ns()
        time.sleep(ends.seconds)
        after, ended_ns = (cpu_s(sender.pid), cpu_s(receiver.pid)), time.monotonic_ns()
        sender.send_signal(signal.SIGTERM)
        sender.wait()
        receiver.terminate()
        records = [json.loads(line) for line in receiver.stdout]
    goodput = [(one["t_ns"], one["bytes"]) for one in records if one["event"] == "goodput"]
    inside = [one for one in goodput if begun_ns <= one[0] <= ended_ns]
    if len(inside) < 2:
        raise click.ClickException("the sink of UDT wrote no goodput: is the machine overloaded?")
    (first_ns, first_bytes), (last_ns, last_bytes) = inside[0], inside[-1]
    bytes_each_s = (last_bytes - first_bytes) / (last_ns - first_ns) * 1e9
    elapsed_s = (ended_ns - begun_ns) / 1e9
    return Run.of(bytes_each_s * elapsed_s, elapsed_s, after[0] - before[0], after[1] - before[1])


def tcp_run(ends: Ends) -> Run:
    """One TCP connection of iperf3, without its first second."""
    server = ends.at_receiver("iperf3", "-s", "-1", "--forceflush", "-p", str(PORT))
    timing = ("-t", str(ends.seconds), "-O", str(WARM_UP_S), "-b", f"{ends.rate_mbps}M", "-J")
    with serving(server, "listening"):
        said = json.loads(sandbox.run(*ends.at_sender("iperf3", "-c", ADDRESS, "-p", str(PORT), *timing)))
    got, cpu = said["end"]["sum_received"], said["end"]["cpu_utilization_percent"]
    spent_s = (cpu["host_total"] / 100 * got["seconds"], cpu["remote_total"] / 100 * got["seconds"])
    return Run.of(got["bytes"], got["seconds"], *spent_s)


TRANSPORTS: dict[str, Callable[[Ends], Run]] = {"dcudp": dcudp_run, "udt": udt_run, "tcp": tcp_run}


def measure(ends: Ends, rounds: int) -> list[dict[str, Any]]:
    """The rows of the transports."""
    runs: dict[str, list[Run]] = {name: [] for name in TRANSPORTS}
    for number in range(rounds):
        for name in list(TRANSPORTS)[:: -1 if number % 2 else 1]:
            runs[name].append(TRANSPORTS[name](ends))
    tcp_mbps = [run.mbps for run in runs["tcp"]]
    return [
        {
            "transport": name,
            "mbps": Spread.of([run.mbps for run in of_one]),
            "of_tcp": Spread.of([run.mbps / tcp for run, tcp in zip(of_one, tcp_mbps, strict=True)]),
            "sender_cpu": Spread.of([run.sender_cpu for run in of_one]),
            "receiver_cpu": Spread.of([run.receiver_cpu for run in of_one]),
        }
        for name, of_one in runs.items()
    ]


@click.command(help=__doc__)
@click.option("--rate-mbps", default=10_000, show_default=True, help="The limit of each transport.")
@click.option("--one-core", is_flag=True, help="Both ends share a core.")
@click.option("--offloads/--no-offloads", default=True, help="Whether the veth pair has its offloads.")
@click.option("--realtime", is_flag=True, help="Run both ends with SCHED_FIFO.")
@click.option("--rounds", default=5, show_default=True, help="Number of runs of each transport.")
@click.option("--seconds", default=3, show_default=True, help="Duration of a run.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def main(
    rate_mbps: int,
    one_core: bool,
    offloads: bool,
    realtime: bool,
    rounds: int,
    seconds: int,
    as_json: bool,
) -> None:
    if one_core and realtime:
        raise click.UsageError("iperf3 waits for its next packet by spinning: on one core, omit --realtime")
    sandbox.enter()
    link_hosts(offloads)
    with tempfile.TemporaryDirectory() as folder:
        key = Path(folder) / "key"
        CliRunner().invoke(dcudp_command, ["key", str(key)], catch_exceptions=False)
        rows = measure(Ends(rate_mbps, seconds, one_core, realtime, key), rounds)
    cores = "one core" if one_core else "a core for each end"
    title = f"At most {rate_mbps} Mbit/s, {cores}, {'with' if offloads else 'without'} offloads"
    title += ", SCHED_FIFO" if realtime else ""
    present(title, ("transport", "mbps", "of_tcp", "sender_cpu", "receiver_cpu"), rows, as_json)


if __name__ == "__main__":
    main()
