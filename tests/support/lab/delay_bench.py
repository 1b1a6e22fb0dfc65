"""Links through the delay line in private network namespaces, without a switch.

hosts: h0 ---- a0 [ line ] b0 ---- s0 :switch
       h1 ---- a1 [ line ] b1 ---- s1
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.waiting import wait_until
from weir_base.paths import artifact

Report = dict[str, Any]
LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000
OFFLOADS = ("tx", "tso", "gso", "gro")


class Namespace:
    """A network namespace that a sleeping process holds."""

    def __init__(self) -> None:
        self._holder = subprocess.Popen(("unshare", "--net", "sleep", "3600"))
        own = os.readlink("/proc/self/ns/net")
        wait_until(lambda: os.readlink(self.path) != own, "a network namespace of its own")
        self.run("sysctl", "-q", "-w", "net.ipv6.conf.all.disable_ipv6=1")

    @property
    def pid(self) -> int:
        return self._holder.pid

    @property
    def path(self) -> str:
        return f"/proc/{self.pid}/ns/net"

    def inside(self, *argv: str) -> tuple[str, ...]:
        return ("nsenter", f"--net={self.path}", *argv)

    def run(self, *argv: str, text: str | None = None) -> str:
        done = subprocess.run(self.inside(*argv), input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{argv}: {done.stderr}"
        return done.stdout

    def socket(self, *kind: int) -> socket.socket:
        """Return a socket of this namespace, by default for TCP. A thread of its own enters the namespace."""
        made: list[socket.socket] = []

        def make() -> None:
            with open(self.path) as namespace:
                assert LIBC.setns(namespace.fileno(), CLONE_NEWNET) == 0
            made.append(socket.socket(*kind))

        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        return made[0]

    def close(self) -> None:
        self._holder.kill()
        self._holder.wait()


class DelayBench:
    """A number of links in three namespaces, the delay line between them, and the probe."""

    def __init__(self, folder: Path, links: int, offloads: bool = False) -> None:
        self.folder, self.count = folder, links
        self.hosts, self.line, self.switch = Namespace(), Namespace(), Namespace()
        self._process: subprocess.Popen[bytes] | None = None
        self._output = folder / "line.jsonl"
        self._connect(offloads)

    def _connect(self, offloads: bool) -> None:
        ends = ((self.hosts, "h", "a"), (self.switch, "s", "b"))
        for namespace, outer, inner in ends:
            made = "".join(
                f"link add {inner}{n} type veth peer name {outer}{n} netns {namespace.pid}\n"
                f"link set {inner}{n} up\n"
                for n in range(self.count)
            )
            self.line.run("ip", "-batch", "-", text=made)
            up = "".join(f"link set {outer}{n} up\n" for n in range(self.count))
            namespace.run("ip", "-batch", "-", text=up)
            if not offloads:
                for n in range(self.count):
                    off = [word for name in OFFLOADS for word in (name, "off")]
                    namespace.run("ethtool", "-K", f"{outer}{n}", *off)

    def _plan(self, up: str, down: str) -> Path:
        """Write the file of the links, with the same impairments on each."""
        plan = self.folder / "links.txt"
        plan.write_text("".join(f"l{n} a{n} b{n} {up} {down}\n" for n in range(self.count)))
        return plan

    def start(self, up: str = "-", down: str = "-", *options: str) -> None:
        """Start the delay line with the same impairments on every link, and wait until it is ready."""
        plan = self._plan(up, down)
        argv = self.line.inside(str(artifact("weir-delay-line")), "--links", str(plan), *options)
        with open(self._output, "wb") as output:
            self._process = subprocess.Popen(argv, stdout=output)
        wait_until(lambda: '"ready"' in self._output.read_text(), "the delay line is ready")

    def refusal(self, text: str) -> str:
        """Start the delay line with a wrong file, and return its error message."""
        plan = self.folder / "wrong.txt"
        plan.write_text(text)
        argv = self.line.inside(str(artifact("weir-delay-line")), "--links", str(plan))
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=20)
        assert (done.returncode, done.stdout) == (1, "")
        return done.stderr

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def reports(self) -> list[Report]:
        text = self._output.read_text()
        complete = text[: text.rfind("\n") + 1].splitlines()
        return [record for record in map(json.loads, complete) if record["event"] == "report"]

    def change(self, up: str, down: str, event: str = "changed") -> None:
        """Change the impairments of the running line, and wait for its answer."""
        self._plan(up, down)
        known = self._output.read_text().count(f'"{event}"')
        os.kill(self.pid, signal.SIGHUP)
        wait_until(lambda: self._output.read_text().count(f'"{event}"') > known, event)

    def report(self) -> Report:
        """Ask the running line for a report."""
        known = len(self.reports())
        os.kill(self.pid, signal.SIGUSR1)
        wait_until(lambda: len(self.reports()) > known, "a report")
        return self.reports()[-1]

    def stop(self, number: int = signal.SIGTERM) -> Report:
        """End the line and return its last report."""
        assert self._process is not None
        self._process.send_signal(number)
        assert self._process.wait(20) == 0
        self._process = None
        return self.reports()[-1]

    def wait_ended(self) -> int:
        """Wait until the line ends without a signal, and return its status."""
        assert self._process is not None
        status = self._process.wait(20)
        self._process = None
        return status

    def probe(self, count: int, *options: str) -> Report:
        """Measure every link in both directions."""
        plan = self.folder / "probe.txt"
        plan.write_text(
            "".join(f"l{n} {self.hosts.path} h{n} {self.switch.path} s{n}\n" for n in range(self.count))
        )
        argv = (str(artifact("weir-delay-probe")), "--links", str(plan), "--count", str(count), *options)
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        measured: Report = json.loads(done.stdout)
        return measured

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        for namespace in (self.hosts, self.line, self.switch):
            namespace.close()


@contextmanager
def delay_bench(folder: Path, links: int = 1, offloads: bool = False) -> Iterator[DelayBench]:
    """Build links through the delay line, and remove them at the end."""
    bench = DelayBench(folder, links, offloads)
    try:
        yield bench
    finally:
        bench.close()


def balance(direction: Report) -> int:
    """Return how many packets of a direction are unaccounted for."""
    came = direction["received"] + direction["duplicated"]
    went = ("sent", "lost", "too_large", "no_room", "refused", "discarded", "waiting")
    return int(came - sum(direction[name] for name in went))
