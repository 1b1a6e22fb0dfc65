"""Measure the time from an alarm to the FLOW_MOD that answers it, with many known flows and under load.

    python -m bench.decision_latency [--flows N] [--engine ryu|os-ken] [--rounds N] [--floods N] [--json]

A real controller (fabric_app, sdtcp_app) reads the flows from a database and talks to one scripted switch
with 100 ports. "calm": one alarm at a time. "load": 2,000 alarms a second over all ports for 10 s. The
switch takes the times, from writing the alarm's bytes to its socket to reading the FLOW_MOD's bytes from
it, so both ways through the kernel are included.

--floods: "flood" is as "calm", while the last port sends 1,200 packet-ins a second: announcements (ARP) of
200 and SYNs of 1,000 random hosts, as many as the fabric's meters let a port send. Windows of "quiet", which
is as "calm", and of "flood" alternate. "ratio" is the p99 of a flood divided by that of the window before;
alarms that wait for more than 1 s end the run.

An alarm is "unanswered" if no FLOW_MOD answers it within 50 ms, when the next alarm of its port is due,
nor in the 3/2 RTT before it. "late_ms" is the longest delay with which the switch sent an alarm: after a
long one, two alarms of a port are sent together, and the controller may answer them once. "rss_mb" is the
controller's memory with the flows known, and after each round once all clamps are lifted. "writer_mb" is
the memory of its database process.
"""

from __future__ import annotations

import contextlib
import os
import random
import selectors
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from bench.figures import present
from bench.temporary import temporary_folder
from flowdb.db import FlowDb
from flowdb.flow import FiveTuple, Flow, Hop
from mininet_topos.results.summary import percentile
from openflow_ext import wire
from sdtcp_app.config import SdtcpSettings
from sdtcp_app.stage import STAGE
from tests.support.lab.forged_arp import announcement

HELLO, ECHO_REQUEST, ECHO_REPLY, FEATURES_REQUEST, FLOW_MOD = 0, 2, 3, 5, 14
MULTIPART_REQUEST, BARRIER_REQUEST, PORT_DESC = 18, 20, 13
ADD, DELETE_STRICT = 0, 4
PORTS, PER_S, LOAD_S = 100, 2000, 10
CALM = 1000
LEAST_FLOWS = PER_S * LOAD_S * 3 // 2
"""Each alarm of a round punishes another flow of its port. A port without one more answers no alarm."""
FLOOD_PER_S, ARP_PER_S = 1200, 200
_FABRIC_COOKIE = 0x5745_4901_0000_0000
PACKET_IN = 10
PATIENCE_S = 60.0
STEP_S = 1.5 * SdtcpSettings().rtt_us / 1e6
ATTACHED = wire.PortCountersFlags.ATTACHED
RATE_BPS = 10**9
_COMMAND_AT, _ADDRESS_AT = 25, 75
"""Offsets in a FLOW_MOD: its command, and ipv4_dst in the match of a clamp."""


def remember(url: str, count: int, ports: int = PORTS) -> None:
    """Write open flows of the first ports to a database, like a controller that has just ended."""
    flowdb = FlowDb(url, max_pending=10 * count)
    now_ns = flowdb.clock.now_ns()
    for number in range(count):
        port, at_port = number % ports, number // ports
        key = FiveTuple(
            f"10.{port}.{at_port >> 8}.{at_port & 255}", "10.200.0.1", 1024 + at_port % 60_000, 80
        )
        path = (Hop(1, 1000 + port, 1 + port),)
        opened_ns = now_ns - 10**9 * (count - number) // count
        flowdb.flow_opened(Flow(flowdb.next_id(), key, path, opened_ns, 1460, 9, 7, 250))
    flowdb.close()


class Switch:
    """A switch that answers common requests and sends alarms, in one thread without other work."""

    def __init__(self, port: int, ports: int = PORTS) -> None:
        self.clamped: list[tuple[int, float]] = []
        self.lifted = self.sampled = 0
        self._ports = ports
        self._socket = _connect(port)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._socket, selectors.EVENT_READ)
        self._buffer = b""
        self._send(HELLO, b"", 1)

    def alarm(self, port_no: int) -> float:
        """Send an alarm, and return the time."""
        port = wire.OfpPort(port_no, name=b"p")
        alarm = wire.BufAlarm(port, 30, 45_000, RATE_BPS, STAGE.cookie, 0, 40, time.time_ns())
        message = wire.encode_message(alarm)
        sent = time.perf_counter()
        self._socket.sendall(message)
        return sent

    def packet_in(self, port_no: int, frame: bytes) -> None:
        """Send a packet-in of the fabric's entries."""
        match = struct.pack("!HHIII", 1, 12, 0x8000_0004, port_no, 0)
        head = struct.pack("!IHBBQ", 0xFFFFFFFF, len(frame), 1, 2, _FABRIC_COOKIE)
        self._send(PACKET_IN, head + match + b"\0\0" + frame, 0)

    def serve(self, until: float, enough: Callable[[], bool] = lambda: False) -> None:
        """Read messages until a time, or until ``enough`` holds."""
        while not enough() and (left := until - time.perf_counter()) > 0:
            if self._selector.select(left):
                self._take(self._socket.recv(1 << 16))

    def await_lifts(self, count: int) -> None:
        """Wait until so many clamps have been lifted since the start."""
        self.serve(time.perf_counter() + PATIENCE_S, lambda: self.lifted >= count)
        if self.lifted < count:
            raise click.ClickException(f"{count - self.lifted} clamps are not lifted in {PATIENCE_S:.0f} s")

    def close(self) -> None:
        self._socket.close()

    def _take(self, data: bytes) -> None:
        now = time.perf_counter()
        if not data:
            raise click.ClickException("the controller closed the connection")
        self._buffer += data
        while len(self._buffer) >= 8 and len(self._buffer) >= (length := self._length()):
            message, self._buffer = self._buffer[:length], self._buffer[length:]
            self._answer(message, now)

    def _length(self) -> int:
        return int.from_bytes(self._buffer[2:4], "big")

    def _answer(self, message: bytes, now: float) -> None:
        of_type, xid = message[1], int.from_bytes(message[4:8], "big")
        if of_type == FLOW_MOD and message[8:16] == STAGE.cookie.to_bytes(8, "big"):
            if message[_COMMAND_AT] == ADD:
                self.clamped.append((message[_ADDRESS_AT + 1] + 1, now))
            self.lifted += message[_COMMAND_AT] == DELETE_STRICT
        elif of_type == FEATURES_REQUEST:
            self._send(of_type + 1, struct.pack("!QIBB2xII", 1, 0, 254, 0, 0, 0), xid)
        elif of_type == ECHO_REQUEST:
            self._send(ECHO_REPLY, message[8:], xid)
        elif of_type == BARRIER_REQUEST:
            self._send(of_type + 1, b"", xid)
        elif of_type == MULTIPART_REQUEST and wire.is_extension_message(message):
            self.sampled += 1
            counters = (wire.PortCountersRecord(1 + n, flags=ATTACHED, n_i=n) for n in range(self._ports))
            self._socket.sendall(wire.encode_message(wire.PortCountersReply(tuple(counters)), xid=xid))
        elif of_type == MULTIPART_REQUEST:
            ports = b""
            if message[8:10] == struct.pack("!H", PORT_DESC):
                ports = b"".join(wire.encode_port(wire.OfpPort(1 + n, name=b"p")) for n in range(self._ports))
            self._send(of_type + 1, message[8:10] + bytes(6) + ports, xid)

    def _send(self, of_type: int, body: bytes, xid: int) -> None:
        self._socket.sendall(struct.pack("!BBHI", wire.OFP13, of_type, 8 + len(body), xid) + body)


def _connect(port: int) -> socket.socket:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            connection = socket.create_connection(("127.0.0.1", port))
        except OSError:
            if time.monotonic() > deadline:
                raise click.ClickException("the controller does not listen") from None
            time.sleep(0.1)
        else:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection


@contextlib.contextmanager
def controller(
    engine: str, folder: Path, url: str, ports: int = PORTS
) -> Iterator[tuple[subprocess.Popen[bytes], Switch]]:
    """A controller process with a scripted switch."""
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "weir", "controller", "--engine", engine, "--db", url]
    command += ["--listen", f"127.0.0.1:{port}"]
    environment = os.environ | {"PYTHONPATH": os.getcwd()}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    try:
        switch = Switch(port, ports)
        yield process, switch
        switch.close()
    except click.ClickException:
        click.echo((folder / "log").read_text()[-4000:], err=True)
        raise
    finally:
        process.terminate()
        process.wait(30)


def calm(
    switch: Switch, ports: int = PORTS, between: Callable[[float], None] | None = None, alarms: int = CALM
) -> list[float]:
    """The times from alarms, sent one at a time, to their FLOW_MODs, in ms.

    ``between`` is called until a time, before each alarm. By default the switch answers requests until then.
    """
    chance, taken = random.Random(1), []  # noqa: S311 - an order, not a secret
    for _ in range(alarms):
        switch.clamped.clear()
        sent = switch.alarm(chance.randrange(ports) + 1)
        switch.serve(sent + 1, lambda: bool(switch.clamped))
        if not switch.clamped:
            raise click.ClickException("an alarm was not answered within 1 s")
        taken.append((switch.clamped[0][1] - sent) * 1000)
        (between or switch.serve)(time.perf_counter() + 0.004)
    return taken


class Flood:
    """Frames of random hosts at the last port, at a rate that does not depend on when they are sent."""

    def __init__(self, switch: Switch) -> None:
        self._switch, self._chance = switch, random.Random(1)  # noqa: S311 - not a secret
        self._began, self._sent = time.perf_counter(), 0

    def until(self, end: float) -> None:
        """Send the frames that are due, and answer requests."""
        while (now := time.perf_counter()) < end:
            if self._sent < (now - self._began) * FLOOD_PER_S:
                frame = self._arp() if self._sent % FLOOD_PER_S < ARP_PER_S else self._syn()
                self._switch.packet_in(PORTS, frame)
                self._sent += 1
            else:
                self._switch.serve(min(end, now + 1 / FLOOD_PER_S))

    def _arp(self) -> bytes:
        sender = b"\2" + self._chance.randbytes(5)
        return announcement(sender, b"\x0a\xfe" + self._chance.randbytes(2))

    def _syn(self) -> bytes:
        tcp = struct.pack("!HHIIBBHHH", self._chance.randrange(1024, 65536), 80, 1, 0, 5 << 4, 2, 64240, 0, 0)
        head = struct.pack("!BBHHHBBH", 0x45, 0, 40, 0, 0, 64, 6, 0)
        addresses = b"\x0a\xfe" + self._chance.randbytes(2) + b"\x0a\xc8\0\1"
        ethernet = b"\2" + bytes(5) + b"\2" + self._chance.randbytes(5) + b"\x08\x00"
        return ethernet + head + addresses + tcp


def floods(switch: Switch, count: int) -> list[dict[str, Any]]:
    """Rows of windows that are quiet and flooded in turn, and of all of them together."""
    rows, every = [], {"quiet": list[float](), "flood": list[float]()}
    for number in range(count):
        quiet = calm(switch, PORTS - 1)
        flood = Flood(switch)
        flooded = calm(switch, PORTS - 1, flood.until)
        ratio = percentile(flooded, 99) / percentile(quiet, 99)
        rows.append(row(f"quiet {number + 1}", quiet))
        rows.append(row(f"flood {number + 1}", flooded, ratio=f"{ratio:.2f}"))
        every["quiet"] += quiet
        every["flood"] += flooded
    ratio = percentile(every["flood"], 99) / percentile(every["quiet"], 99)
    return [*rows, row("all quiet", every["quiet"]), row("all flood", every["flood"], ratio=f"{ratio:.2f}")]


def load(switch: Switch) -> tuple[list[float], int, float]:
    """Under load: the times from alarm to FLOW_MOD in ms, the unanswered alarms, and the longest delay."""
    switch.clamped.clear()
    sent: dict[int, list[float]] = {port: [] for port in range(1, PORTS + 1)}
    start, late_s = time.perf_counter(), 0.0
    for number in range(PER_S * LOAD_S):
        due = start + number / PER_S
        switch.serve(due)
        port = number % PORTS + 1
        sent[port].append(switch.alarm(port))
        late_s = max(late_s, sent[port][-1] - due)
    switch.serve(time.perf_counter() + 1)
    taken, unanswered = [], 0
    for port, alarms in sent.items():
        answers = [at for where, at in switch.clamped if where == port]
        for alarm in alarms:
            first = next((at for at in answers if alarm - STEP_S < at < alarm + PORTS / PER_S), None)
            if first is None:
                unanswered += 1
            elif first > alarm:
                taken.append((first - alarm) * 1000)
    return taken, unanswered, late_s * 1000


def memory(pid: int) -> dict[str, int]:
    """The memory of the controller and of its writer."""
    lists = (task.joinpath("children").read_text() for task in Path(f"/proc/{pid}/task").iterdir())
    writers = (_rss_mb(child) for children in lists for child in children.split())
    return {"rss_mb": _rss_mb(pid), "writer_mb": sum(writers)}


def _rss_mb(pid: int | str) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) // 1024


def row(phase: str, taken: list[float], **more: Any) -> dict[str, Any]:
    figures = {f"p{part}_ms": f"{percentile(taken, part):.2f}" for part in (50, 95, 99)}
    return {"phase": phase, "alarms": len(taken), **figures, "max_ms": f"{max(taken):.2f}", **more}


@click.command(help=__doc__)
@click.option(
    "--flows",
    type=click.IntRange(LEAST_FLOWS),
    default=100_000,
    show_default=True,
    help="Number of known flows.",
)
@click.option("--engine", type=click.Choice(["ryu", "os-ken"]), default="ryu", show_default=True)
@click.option("--rounds", default=2, show_default=True, help="Number of rounds under load.")
@click.option("--floods", "flooded", default=0, show_default=True, help="Number of windows with a flood.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def main(flows: int, engine: str, rounds: int, flooded: int, as_json: bool) -> None:
    with temporary_folder() as folder:
        url = f"sqlite:///{folder}/weir.db"
        remember(url, flows)
        with controller(engine, folder, url) as (process, switch):
            switch.serve(time.perf_counter() + 3)
            rows = [row("calm", calm(switch), unanswered=0, late_ms="-", **memory(process.pid))]
            for number in range(rounds):
                lifted = switch.lifted
                taken, unanswered, late_ms = load(switch)
                switch.await_lifts(lifted + len(switch.clamped))
                more = {"unanswered": unanswered, "late_ms": f"{late_ms:.1f}", **memory(process.pid)}
                rows.append(row(f"load {number + 1}", taken, **more))
            if flooded:
                rows += floods(switch, flooded)
    columns = ["phase", "alarms", "p50_ms", "p95_ms", "p99_ms", "max_ms", "ratio", "unanswered", "late_ms"]
    columns += ["rss_mb", "writer_mb"]
    present(f"alarm to FLOW_MOD, {engine}, {flows} flows known", columns, rows, as_json)


if __name__ == "__main__":
    main()
