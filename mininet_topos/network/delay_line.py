"""The delay line (native/delay_line) between hosts and switches, for kernels without netem.

    host [h1-eth0] ---- [h0 | delay line | s0] ---- [s1-eth1] switch

The delay line has a network namespace of its own. For each host there are two pairs of veth interfaces
instead of one, and the program passes the packets between their ends. The switch's port keeps its name and
its queue.
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from mininet.link import Link
from mininet.node import Host, Node

from mininet_topos.errors import LabError
from mininet_topos.machine.commands import built, run
from mininet_topos.machine.lab_state import LabState
from mininet_topos.machine.programs import Program
from mininet_topos.network.impairment import Impairment
from mininet_topos.network.link_counts import LinkCounts
from mininet_topos.network.nodes import inside

PROGRAM = "weir-delay-line"
PRIORITY = 50
"""Real-time priority. The network must not wait for a CPU that a host's program uses."""
DIRECTIONS = ("up", "down")
NOT_ON_PURPOSE = ("too_large", "no_room", "refused", "discarded", "ring_dropped", "unseen", "vanished")
"""Counters of packets that the line lost, but not as stated; native/delay_line/link.h and report.c define
them."""
Report = dict[str, Any]


class Joint(NamedTuple):
    """A link that the line passes on: the host, and the line's two interfaces."""

    host: str
    host_side: str
    switch_side: str


class LineNode(Node):  # type: ignore[misc]  # Mininet is untyped
    """The node that holds the line's namespace.

    A class of its own: Mininet notes in a node's class that it is set up, and derived classes inherit that.
    """


class DelayLine:
    """The delay line of one network: namespace, links, program."""

    means = "delay line"

    def __init__(self, wanted: Impairment, state: LabState) -> None:
        self._wanted, self._state = wanted, state
        self._joints: list[Joint] = []
        self._node = LineNode("line", inNamespace=True)
        self._folder = tempfile.TemporaryDirectory(prefix="weir-line-")
        state.note_folder(self._folder.name)
        self._program: Program | None = None
        self._ready: Report = {}
        self._reports: list[Report] = []
        self._read_bytes = 0
        run(*inside(self._node, "sysctl", "-q", "-w", "net.ipv6.conf.default.disable_ipv6=1"))

    @property
    def link_class(self) -> type[Link]:
        """The class of Mininet's links: a link of a host goes through the line."""
        line = self

        class DelayedLink(Link):  # type: ignore[misc]  # Mininet is untyped
            @classmethod
            def makeIntfPair(  # noqa: N802 - Mininet's name
                cls,
                intfname1: str,
                intfname2: str,
                addr1: str | None = None,
                addr2: str | None = None,
                node1: Node | None = None,
                node2: Node | None = None,
                deleteIntfs: bool = True,  # noqa: N803 - Mininet's name
            ) -> None:
                one, other = (intfname1, addr1, node1), (intfname2, addr2, node2)
                if isinstance(node2, Host):
                    one, other = other, one
                if isinstance(one[2], Host) and not isinstance(other[2], Host):
                    line.join(one, other)
                else:
                    super().makeIntfPair(intfname1, intfname2, addr1, addr2, node1, node2, deleteIntfs)

        return DelayedLink

    def join(self, host: tuple[str, str | None, Node], switch: tuple[str, str | None, Node]) -> None:
        """Connect a host's and a switch's interface (name, address, node) by way of the line."""
        number = len(self._joints)
        joint = Joint(host[2].name, f"h{number}", f"s{number}")
        for (name, address, node), own in ((host, joint.host_side), (switch, joint.switch_side)):
            addressed = f"address {address}" if address else ""
            answer = node.cmd(
                f"ip link add name {name} {addressed} type veth peer name {own} netns {self._node.pid}"
            )
            if answer:
                raise LabError(f"{node.name}: cannot make {name}: {answer.strip()}")
        self._joints.append(joint)

    def start(self) -> None:
        """Start the program. Raises ProgramFailed if it is not ready in time."""
        folder = Path(self._folder.name)
        ends = [name for joint in self._joints for name in (joint.host_side, joint.switch_side)]
        (folder / "up").write_text("".join(f"link set {name} up\n" for name in ends))
        run(*inside(self._node, "ip", "-batch", str(folder / "up")))
        plan = self._write_plan()
        argv = inside(self._node, str(built(PROGRAM)), "--links", str(plan), "--priority", str(PRIORITY))
        self._records = folder / "records"
        program = Program(self.means, argv, folder / "log", self._state, records=self._records)
        self._program = program
        program.wait_ready(lambda: bool(self._read() and self._ready), "it opens its interfaces")
        self.counts()

    def _write_plan(self) -> Path:
        """Write the file of links that the program reads. Returns its path."""
        up, down = (settings(one) for one in halves(self._wanted))
        plan = Path(self._folder.name) / "links"
        plan.write_text("".join(f"{' '.join(joint)} {up} {down}\n" for joint in self._joints))
        return plan

    def apply(self) -> None:
        """Nothing is left to set: the program has its impairments since its start."""

    def change(self, wanted: Impairment) -> None:
        """Set other impairments while packets pass; packets that wait keep their delay.

        Raises ProgramFailed if the program does not answer.
        """
        self._wanted = wanted
        self._write_plan()
        self._ask(signal.SIGHUP, "it does not read its links again")

    def check(self) -> None:
        """Raise ProgramFailed if the program has ended."""
        self._running().check()

    def _running(self) -> Program:
        if self._program is None:
            raise LabError("the delay line has not been started")
        return self._program

    def _ask(self, number: signal.Signals, failure: str) -> None:
        """Send the program a signal and wait for its record."""
        program = self._running()
        program.check()
        os.kill(program.pid, number)
        program.wait_ready(lambda: self._read() > 0, failure)

    def _read(self) -> int:
        """Read the records that the program has completed since the last call. Returns how many."""
        with open(self._records, "rb") as records:
            records.seek(self._read_bytes)
            written = records.read()
        complete = written[: written.rfind(b"\n") + 1]
        self._read_bytes += len(complete)
        found = [json.loads(line) for line in complete.splitlines()]
        for record in found:
            if record["event"] == "ready":
                self._ready = record
            elif record["event"] == "report":
                self._reports = [*self._reports[-1:], record]
        return len(found)

    def counts(self) -> LinkCounts:
        """Ask the program for a report. Raises ProgramFailed if it does not answer."""
        self._ask(signal.SIGUSR1, "it writes no report")
        directions = [link[name] for link in self._reports[-1]["links"].values() for name in DIRECTIONS]
        return LinkCounts(
            lost=sum(direction["lost"] for direction in directions),
            duplicated=sum(direction["duplicated"] for direction in directions),
        )

    def record(self) -> dict[str, Any]:
        """Return what the line did between the last two calls of ``counts``."""
        return {"by": self.means, "priority": self._ready["priority"]} | since(*self._reports)

    def stop(self) -> None:
        """End the program and remove the namespace, with the interfaces in it."""
        try:
            if self._program is not None:
                self._program.stop()
        finally:
            self._node.terminate()
            self._folder.cleanup()


def halves(wanted: Impairment) -> tuple[Impairment, Impairment]:
    """Return the impairments of both directions of a link: from the host, and to the host.

    Each gets half of the delay, so that the program need not wake up for each packet. Jitter and reordering
    need the whole delay in one direction.
    """
    if wanted.jitter_ms or wanted.reorder_percent:
        return wanted, Impairment()
    return replace(wanted, delay_ms=wanted.delay_ms / 2), Impairment(wanted.delay_ms / 2)


def settings(one: Impairment) -> str:
    """Return the impairment of a direction as the program reads it."""
    values = {
        "delay_us": one.delay_ms * 1000,
        "jitter_us": one.jitter_ms * 1000,
        "loss": one.loss_percent,
        "duplicate": one.duplicate_percent,
        "reorder": one.reorder_percent,
    }
    words = [f"{name}={value:.9g}" for name, value in values.items() if value]
    if one.jitter_ms:
        words.append(one.jitter)
    return ",".join(words) or "-"


def since(before: Report, after: Report) -> dict[str, Any]:
    """Return the growth of the counters from one report to the next, as sums and by host and direction.

    ``not_on_purpose``: packets that were lost otherwise than stated, by counter; empty if there are none.
    """
    hosts = {
        host: {name: _grown(before["links"][host][name], link[name]) for name in DIRECTIONS}
        for host, link in after["links"].items()
    }
    directions = [link[name] for link in hosts.values() for name in DIRECTIONS]
    names = [name for name in directions[0] if name != "lateness_us"] if directions else []
    pkts = {name: sum(direction[name] for direction in directions) for name in names}
    elapsed_us = (after["t_ns"] - before["t_ns"]) / 1000
    return {
        "lateness_us": after["lateness_us"],
        "stalls": after["stalls"],
        "longest_stall_us": after["longest_stall_us"],
        "cpu": round((after["cpu_us"] - before["cpu_us"]) / elapsed_us, 4),
        "pkts": pkts,
        "not_on_purpose": {name: pkts[name] for name in NOT_ON_PURPOSE if pkts.get(name)},
        "hosts": hosts,
    }


def _grown(before: Report, after: Report) -> Report:
    return {
        name: value if name == "lateness_us" else value - before[name]
        for name, value in after.items()
        if name != "downs"
    }
