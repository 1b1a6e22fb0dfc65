"""Compare TCP throughput through one switch with the agent's programs on its ports and without.

    python -m bench.throughput [--datapath userspace|kernel] [--offered-mbps N] [--pairs N] [--json]

"userspace" is Open vSwitch with its userspace datapath, and XDP. "kernel" is a Linux bridge instead of
Open vSwitch, and tc. Runs without programs (stock), with programs that do nothing (empty) and with the
agent's (weir) alternate on the same path, and a ratio compares neighbours in time. "cpus" is how many
CPUs were busy with hosts, switch and programs. At a fixed rate (--offered-mbps), the ratio of "cpus" is
the price of the programs. Two more cases run empty programs: "native" XDP, and "egress" only. SCCP's
entries are installed, with a common RTT so large that no window is lowered.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import click

from bench import program_cost, sandbox
from bench.data_plane import sccp_rules
from bench.figures import Spread, busy_cpus, idle_s, present
from libbpf_cffi import libbpf
from openflow_ext.switch.dataplane.interface import PortSettings
from openflow_ext.switch.dataplane.kernel import KernelDataPlane
from tests.support.agent.switch_bench import open_vswitch

BRIDGE = 1
CAPACITY_BPS = 100_000_000_000
COMMON_RTT_US = 1_000_000
NUMBERS = (1, 2)
PORT, HOST, SWITCH, SERVER = "p{}", "h{}", "sw", "10.0.0.2"
SEND_BUFFER = 16 * 1024 * 1024
WINDOW = "512K"  # more data in flight only overflows the path's queues
CASES = ("egress", "native", "empty", "weir")

Cases = Mapping[str, Callable[[], contextlib.AbstractContextManager[None]]]


def build_hosts(*, checksums: bool) -> None:
    """Two hosts with a link each. The hosts compute checksums, as the userspace datapath requires."""
    for number in NUMBERS:
        port, host = PORT.format(number), HOST.format(number)
        sandbox.run("ip", "netns", "add", host)
        sandbox.run("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", host)
        sandbox.run("ip", "link", "set", port, "up")
        sandbox.run("ip", "-n", host, "addr", "add", f"10.0.0.{number}/24", "dev", "eth0")
        sandbox.run("ip", "-n", host, "link", "set", "eth0", "up")
        if checksums:
            sandbox.run(*f"ip netns exec {host} ethtool -K eth0 tx off tso off gso off gro off".split())


@contextlib.contextmanager
def userspace() -> Iterator[None]:
    """Both hosts behind a stock Open vSwitch, userspace datapath."""
    for name in ("wmem_max", "wmem_default"):
        with contextlib.suppress(OSError), open(f"/proc/sys/net/core/{name}", "w") as setting:
            setting.write(str(SEND_BUFFER))
    with open_vswitch() as ovs:
        ovs.vsctl("add-br", SWITCH, "--", "set", "bridge", SWITCH, "datapath_type=netdev")
        build_hosts(checksums=True)
        for number in NUMBERS:
            ovs.vsctl("add-port", SWITCH, PORT.format(number))
        yield


@contextlib.contextmanager
def kernel() -> Iterator[None]:
    """Both hosts behind a Linux bridge, for kernels without the module of Open vSwitch."""
    sandbox.run("ip", "link", "add", SWITCH, "type", "bridge")
    sandbox.run("ip", "link", "set", SWITCH, "up")
    build_hosts(checksums=False)
    for number in NUMBERS:
        sandbox.run("ip", "link", "set", PORT.format(number), "master", SWITCH)
    yield


class Programs:
    """The programs on the ports during a run."""

    def __init__(self, kernel_datapath: bool) -> None:
        self._kernel_datapath = kernel_datapath
        self._ports = {socket.if_nametoindex(PORT.format(number)): number for number in NUMBERS}
        self._empty = {kind: program_cost.empty_program(kind) for kind in ("xdp", "tc")}

    @contextlib.contextmanager
    def stock(self) -> Iterator[None]:
        yield

    def empty(self) -> contextlib.AbstractContextManager[None]:
        """Empty programs at the hooks of the agent's."""
        return self._doing_nothing(0 if self._kernel_datapath else libbpf.XDP_GENERIC, self._kernel_datapath)

    def native(self) -> contextlib.AbstractContextManager[None]:
        """Empty programs, with native XDP."""
        return self._doing_nothing(libbpf.XDP_NATIVE, False)

    def egress(self) -> contextlib.AbstractContextManager[None]:
        """An empty program at the egress only."""
        return self._doing_nothing(0, False)

    @contextlib.contextmanager
    def _doing_nothing(self, xdp_mode: int, tc_ingress: bool) -> Iterator[None]:
        places = [libbpf.TC_EGRESS, libbpf.TC_INGRESS] if tc_ingress else [libbpf.TC_EGRESS]
        for ifindex in self._ports:
            for place in places:
                libbpf.tc_attach(ifindex, place, self._empty["tc"])
            if xdp_mode:
                libbpf.xdp_attach(ifindex, self._empty["xdp"], xdp_mode, replace=False)
        try:
            yield
        finally:
            for ifindex, number in self._ports.items():
                if xdp_mode:
                    libbpf.xdp_detach(ifindex, xdp_mode)
                sandbox.run("tc", "qdisc", "del", "dev", PORT.format(number), "clsact")

    @contextlib.contextmanager
    def weir(self) -> Iterator[None]:
        """A data plane with SCCP's entries on both ports."""
        plane = KernelDataPlane("weir-bench", max_flows=100_000)
        try:
            for ifindex, number in self._ports.items():
                name = PORT.format(number)
                plane.attach(ifindex, name, BRIDGE, number, kernel_datapath=self._kernel_datapath)
                plane.configure(ifindex, PortSettings(common_rtt_us=COMMON_RTT_US), CAPACITY_BPS)
            for rule in sccp_rules():
                plane.put(BRIDGE, rule)
            yield
            counters = [plane.counters(ifindex) for ifindex in self._ports]
            if not all(c.acks_seen for c in counters) or any(c.clamped for c in counters):
                raise click.ClickException(f"the programs saw no ACKs, or lowered windows: {counters}")
        finally:
            plane.destroy()


def transfer(seconds: int, offered_mbps: int) -> float:
    """The goodput of one TCP connection at the server, in Gbit/s."""
    rate = ("-b", f"{offered_mbps}M") if offered_mbps else ()
    inside = ("ip", "netns", "exec")
    server = subprocess.Popen(
        [*inside, HOST.format(2), "iperf3", "-s", "-1", "-A", "1", "--forceflush"],
        stdout=subprocess.PIPE,
        text=True,
    )
    with server:
        assert server.stdout is not None  # noqa: S101 - it is a pipe
        while "listening" not in server.stdout.readline():
            pass
        client = (
            "iperf3",
            "-c",
            SERVER,
            "-t",
            str(seconds),
            "-O",
            "1",
            "-C",
            "reno",
            "-A",
            "0",
            "-w",
            WINDOW,
            "-J",
            *rate,
        )
        said = json.loads(sandbox.run(*inside, HOST.format(1), *client))
        server.communicate()
    return float(said["end"]["sum_received"]["bits_per_second"]) / 1e9


def until_reachable() -> None:
    """Wait until the hosts reach each other. Raises ClickException after 20 s."""
    deadline = time.monotonic() + 20
    ping = ["ip", "netns", "exec", HOST.format(1), "ping", "-c", "1", "-W", "1", SERVER]
    while subprocess.run(ping, check=False, capture_output=True).returncode:
        if time.monotonic() > deadline:
            raise click.ClickException("the hosts do not reach each other through the switch")


def measure(cases: Cases, pairs: int, seconds: int, offered_mbps: int) -> list[dict[str, Any]]:
    """The rows of the cases. Rounds run the cases in turn, every other round backwards."""
    got: dict[str, list[float]] = {name: [] for name in cases}
    busy: dict[str, list[float]] = {name: [] for name in cases}
    for number in range(pairs):
        order = list(cases)[:: -1 if number % 2 else 1]
        for name in order:
            with cases[name]():
                until_reachable()
                begun, idle_before = time.monotonic(), idle_s()
                got[name].append(transfer(seconds, offered_mbps))
                busy[name].append(busy_cpus(begun, idle_before))
    return [
        {
            "programs": name,
            "gbps": Spread.of(got[name]),
            "of_stock": Spread.of(_ratios(got, name)),
            "cpus": Spread.of(busy[name]),
            "cpus_of_stock": Spread.of(_ratios(busy, name)),
            "runs": got[name],
        }
        for name in cases
    ]


def _ratios(runs: Mapping[str, list[float]], name: str) -> list[float]:
    return [one / stock for one, stock in zip(runs[name], runs["stock"], strict=True)]


@click.command(help=__doc__)
@click.option(
    "--datapath", type=click.Choice(["userspace", "kernel"]), default="userspace", show_default=True
)
@click.option(
    "--offered-mbps", default=0, show_default=True, help="The sender's rate; 0: as much as possible."
)
@click.option(
    "--case",
    "wanted",
    type=click.Choice(CASES),
    multiple=True,
    help="A case to run besides stock; may be repeated. Default: empty and weir.",
)
@click.option("--pairs", default=5, show_default=True, help="Number of rounds of all cases.")
@click.option(
    "--seconds", default=5, show_default=True, help="Duration of a run, after one second that is not counted."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def main(
    datapath: str, offered_mbps: int, wanted: tuple[str, ...], pairs: int, seconds: int, as_json: bool
) -> None:
    sandbox.enter()
    os.environ.pop("OVS_RUNDIR", None)
    with {"userspace": userspace, "kernel": kernel}[datapath]():
        programs = Programs(datapath == "kernel")
        names = ("stock", *(wanted or ("empty", "weir")))
        rows = measure({name: getattr(programs, name) for name in names}, pairs, seconds, offered_mbps)
    load = f"{offered_mbps} Mbit/s offered" if offered_mbps else "saturated"
    columns = ("programs", "gbps", "of_stock", "cpus", "cpus_of_stock")
    present(f"Throughput, {datapath} datapath, {load}", columns, rows, as_json)


if __name__ == "__main__":
    main()
