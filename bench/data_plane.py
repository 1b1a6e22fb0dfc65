"""Measure what each hook of the data plane costs per packet, with many tracked flows.

    python -m bench.data_plane [--flows N]... [--clamped N] [--train N] [--runs N] [--json]

Real frames cross a veth. Each run sends --packets frames of flows in random order, so that few flow
entries are in a CPU cache. The kernel adds up the run times of the programs (BPF_ENABLE_STATS). Taking
the times has a cost of its own, which the rows of the empty program show; the column "net" is without it.
"a counter a flow" is a program that only counts per flow: the cost of memory alone, which no flow table
can undercut. Before a row is measured, every flow has been seen once under its rules. "a rule came": the
first packets after a new rule.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Any

import click

from bench import program_cost, sandbox
from bench.figures import Spread, present
from bench.frames import ACK, HOST, SYN, Sender, flow, frames
from libbpf_cffi import libbpf
from openflow_ext.switch.dataplane.interface import PortSettings, SweepTimes
from openflow_ext.switch.dataplane.kernel import KernelDataPlane
from openflow_ext.switch.dataplane.rules import CountOp, Rule, TcpMatch, WindowOp
from sccp_app import core
from weir_base.paths import artifact

PORT, PEER = "port", "peer"
BRIDGE, OFPORT = 1, 1
CAPACITY_BPS = 10_000_000_000
PAYLOAD = 100
WINDOW_BYTES = 30_000
HANDSHAKES = 10_000
COUNT = {core.Act.INCREMENT_NI: CountOp.INCREMENT_NI, core.Act.DECREMENT_NI: CountOp.DECREMENT_NI}

Row = dict[str, Any]


def sccp_rules(rows: Sequence[core.Row] = core.TABLE_I) -> Iterator[Rule]:
    """SCCP's Table I for IPv4 and IPv6: the rules that the agent installs."""
    for version in (4, 6):
        for row in rows:
            match = TcpMatch(ip_version=version, flags=row.flags, flags_mask=row.mask)
            count = next((COUNT[act] for act in row.acts if act in COUNT), CountOp.NONE)
            window = WindowOp.FAIR_SHARE if core.Act.SET_WINDOW in row.acts else WindowOp.NONE
            yield Rule(1, 100, 0, match, window_op=window, count_op=count)


def mod_window(index: int) -> Rule:
    """SDTCP's entry for the ACKs of one flow."""
    address, port = flow(index)
    host, far = IPv4Network((HOST, 32)), IPv4Network((address, 32))
    match = TcpMatch(src=host, dst=far, src_port=5000, dst_port=port)
    return Rule(0, 65535, 0, match, WindowOp.MOD_WINDOW, WINDOW_BYTES, alpha=5)


def plug() -> int:
    """Create the veth pair PORT and PEER, and return the ifindex of PORT."""
    sandbox.run("ip", "link", "add", PORT, "type", "veth", "peer", "name", PEER)
    for name in (PORT, PEER):
        sandbox.run("ip", "link", "set", name, "up")
    return socket.if_nametoindex(PORT)


def unplug() -> None:
    sandbox.run("ip", "link", "del", PORT)


class Host:
    """One port of a data plane in the sandbox: frames from PEER enter it, frames sent by PORT leave."""

    def __init__(self, max_flows: int) -> None:
        self.ifindex = plug()
        sandbox.run(*f"tc qdisc add dev {PORT} root handle 1: htb default 1".split())
        sandbox.run(*f"tc class add dev {PORT} parent 1: classid 1:1 htb rate 100gbit".split())
        self.plane = KernelDataPlane("weir-bench", max_flows=max_flows)
        self.attach()

    def attach(self, kernel_datapath: bool = False) -> None:
        self.plane.attach(self.ifindex, PORT, BRIDGE, OFPORT, kernel_datapath=kernel_datapath)
        self.plane.configure(self.ifindex, PortSettings(common_rtt_us=1000), CAPACITY_BPS)

    def open_flows(self, flows: int) -> None:
        """Send handshakes until the programs have seen all of them. Raises ClickException if they do not.

        Few at a time, because the reserve for half-open flows is bounded.
        """
        senders = [
            Sender(PEER, frames(flows, from_host=True, flags=SYN)),
            Sender(PORT, frames(flows, from_host=False, flags=SYN | ACK)),
            Sender(PEER, frames(flows, from_host=True, flags=ACK)),
        ]
        for first in range(0, flows, HANDSHAKES):
            for sender in senders:
                sender.send(min(HANDSHAKES, flows - first))
        for sender in senders:
            sender.close()
        counted = self.plane.counters(self.ifindex).n_i
        if counted < flows * 0.999:
            raise click.ClickException(
                f"only {counted} of {flows} flows were counted: the veth drops packets"
            )

    def close(self) -> None:
        self.plane.destroy()
        unplug()


class Weighing:
    """Runs of one sender, with the run times of the programs."""

    def __init__(self, sender: Sender, packets: int, runs: int) -> None:
        self._sender, self._packets, self._runs = sender, packets, runs

    def cost(
        self, programs: dict[str, int], before_each: Callable[[], None] | None = None
    ) -> dict[str, Spread]:
        """The cost by name, in ns per packet."""
        each: dict[str, list[float]] = {name: [] for name in programs}
        self._sender.send_all()
        for _ in range(self._runs):
            if before_each:
                before_each()
            before = {name: program_cost.run_time(fd) for name, fd in programs.items()}
            self._sender.send(self._packets)
            for name, fd in programs.items():
                took = program_cost.run_time(fd) - before[name]
                if took.count < self._packets * 0.99:
                    raise click.ClickException(f"{name} saw {took.count} of {self._packets} packets")
                each[name].append(took.ns_each)
        return {name: Spread.of(values) for name, values in each.items()}


@dataclass(frozen=True, slots=True)
class Options:
    """The options of main()."""

    clamped: int
    train: int
    packets: int
    runs: int


def empty_costs(options: Options) -> dict[str, Spread]:
    """The cost of empty programs, by kind."""
    ifindex = plug()
    fds = {kind: program_cost.empty_program(kind) for kind in ("xdp", "tc")}
    libbpf.xdp_attach(ifindex, fds["xdp"], libbpf.XDP_GENERIC, replace=False)
    libbpf.tc_attach(ifindex, libbpf.TC_EGRESS, fds["tc"])
    costs: dict[str, Spread] = {}
    for kind, interface, from_host in (("xdp", PEER, True), ("tc", PORT, False)):
        sender = Sender(interface, frames(1000, from_host=from_host, flags=ACK))
        costs |= Weighing(sender, options.packets, options.runs).cost({kind: fds[kind]})
        sender.close()
    for fd in fds.values():
        os.close(fd)
    unplug()
    return costs


def counter_cost(flows: int, options: Options) -> Spread:
    """The cost of a program that only counts per flow (flow_counter.bpf.c)."""
    ifindex = plug()
    sender = Sender(PEER, frames(flows, from_host=True, flags=ACK), options.train)
    with libbpf.Object(artifact("flow_counter.bpf.o")) as counter, contextlib.closing(sender):
        counter.resize("lines", flows)
        counter.load()
        programs = {"flow_counter": counter.program("flow_counter")}
        libbpf.xdp_attach(ifindex, programs["flow_counter"], libbpf.XDP_GENERIC, replace=False)
        cost = Weighing(sender, options.packets, options.runs).cost(programs)
    unplug()
    return cost["flow_counter"]


class Bench:
    """The rows of all cases at one number of flows."""

    def __init__(self, flows: int, options: Options, empty: dict[str, Spread]) -> None:
        self._flows, self._options, self._empty = flows, options, empty
        self._clamped = min(options.clamped, flows)
        self._host = Host(max(flows, 1_000_000))
        self.rows: list[Row] = []

    def measure(self) -> list[Row]:
        with contextlib.closing(self._host):
            plane = self._host.plane
            rules = list(sccp_rules())
            for rule in rules:
                plane.put(BRIDGE, rule)
            self._host.open_flows(self._flows)
            self._sweep()
            with self._sender(PORT, from_host=False, payload=PAYLOAD) as weighing:
                self._weigh(weighing, "SCCP", "weir_egress", "weir_enqueue", "weir_dequeue")
            with self._sender(PEER, from_host=True) as weighing:
                self._weigh(weighing, "SCCP", "weir_ingress")
                self._weigh(weighing, "a rule came", "weir_ingress", before_each=self._put_anew)
                for index in range(self._clamped):
                    plane.put(BRIDGE, mod_window(index))
                case = f"SCCP, {self._clamped:,} MOD_WINDOW"
                self._weigh(weighing, case, "weir_ingress")
                libbpf.xdp_detach(self._host.ifindex, libbpf.XDP_GENERIC)
                self._host.attach(kernel_datapath=True)
                self._weigh(weighing, case, "weir_ingress_tc")
        return self.rows

    @contextlib.contextmanager
    def _sender(self, interface: str, *, from_host: bool, payload: int = 0) -> Iterator[Weighing]:
        these = frames(self._flows, from_host=from_host, flags=ACK, payload=payload)
        sender = Sender(interface, these, self._options.train)
        try:
            yield Weighing(sender, self._options.packets, self._options.runs)
        finally:
            sender.close()

    def _weigh(
        self, weighing: Weighing, case: str, *programs: str, before_each: Callable[[], None] | None = None
    ) -> None:
        costs = weighing.cost({name: self._host.plane.program(name) for name in programs}, before_each)
        for name, cost in costs.items():
            idle = self._empty["xdp" if name == "weir_ingress" else "tc"].median
            self.rows.append(
                {"hook": name, "case": case, "flows": f"{self._flows:,}", "ns": cost}
                | {"net": round(cost.median - idle)}
            )

    def _put_anew(self) -> None:
        """Add a rule of one flow, so that the next ACK of each flow looks its rules up again."""
        self._host.plane.put(BRIDGE, mod_window(0))

    def _sweep(self) -> None:
        """The duration of a sweep that removes nothing, in ms."""
        took = []
        for _ in range(self._options.runs):
            start = time.perf_counter()
            self._host.plane.sweep(SweepTimes(idle_s=3600))
            took.append((time.perf_counter() - start) * 1e3)
        row = {"hook": "weir_sweep", "case": "ms for all flows", "flows": f"{self._flows:,}"}
        self.rows.append(row | {"ns": Spread.of(took)})


@click.command(help=__doc__)
@click.option(
    "--flows", multiple=True, default=(100_000, 1_000_000), show_default=True, help="Number of tracked flows."
)
@click.option(
    "--clamped", default=10_000, show_default=True, help="Number of MOD_WINDOW entries, each for one flow."
)
@click.option("--train", default=1, show_default=True, help="Consecutive packets of the same flow.")
@click.option("--packets", default=300_000, show_default=True, help="Packets in a run.")
@click.option("--runs", default=7, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def main(flows: tuple[int, ...], as_json: bool, **options: int) -> None:
    sandbox.enter()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    rows: list[Row] = []
    asked = Options(**options)
    with program_cost.counted():
        empty = empty_costs(asked)
        for kind, cost in empty.items():
            rows.append({"hook": f"empty {kind}", "case": "", "flows": "", "ns": cost, "net": 0})
        for number in flows:
            cost = counter_cost(number, asked)
            row = {"hook": "a counter a flow", "case": "", "flows": f"{number:,}", "ns": cost}
            rows.append(row | {"net": round(cost.median - empty["xdp"].median)})
            rows += Bench(number, asked, empty).measure()
    present("Cost in the kernel, ns a packet", ("hook", "case", "flows", "ns", "net"), rows, as_json)


if __name__ == "__main__":
    main()
