"""Compare weir_dctcp with the kernel's own DCTCP, segment by segment (needs the module tcp_dctcp).

    python -m bench.kernel_dctcp [--runs N] [--segments N] [--json]

One sender and one receiver in namespaces of their own send the same segments under both controls in turn. A
script marks or drops the n-th segment, the same one for both. Each row is one script. The columns:

"flight" is the mean number of segments in flight when an ACK arrives: the window that the control used.
"ratio" is weir_dctcp's, divided by the kernel's in the same run. "alpha" is the last estimate. "alpha error"
is the greatest difference between it and RFC 8257, section 3.3, for the ACKs that the sender took up. The
kernel counts alpha in steps of 1/1024 and rounds down. "wrong echoes" is the number of segments whose ACK
does not state their CE mark.
"""

from __future__ import annotations

import random
import re
import socket
import subprocess
import tempfile
from pathlib import Path

import click

from bench import sandbox
from bench.figures import Spread, present
from tests.support.data_plane.dctcp_reference import ONE
from tests.support.data_plane.scripted_wire import MSS, Connection, Step, Wire, echoes, replay, scripted_wire
from transports.congestion import available

KERNEL, OURS = "dctcp", "weir_dctcp"
KERNEL_ALPHA_ONE = 1024
WARM_UP_ACKS = 100
"""The first ACKs belong to slow start, which no mark has ended yet."""


def marked(share: float, segments: int, chance: random.Random) -> bytes:
    """Each segment is marked with the same probability."""
    return bytes(chance.choices((Step.PASS, Step.MARK), (1 - share, share), k=segments))


def marked_every(period: int, segments: int, chance: random.Random) -> bytes:
    """One segment of each period is marked, at the same place in it."""
    first = chance.randrange(period)
    return bytes(Step.MARK if place % period == first else Step.PASS for place in range(segments))


def marked_in_bursts(segments: int, chance: random.Random) -> bytes:
    """Half of the segments are marked for 100 segments, and then none for 100 to 500."""
    steps = bytearray()
    while len(steps) < segments:
        steps += marked(0.5, 100, chance) + bytes(chance.randrange(100, 500))
    return bytes(steps[:segments])


def marked_and_lost(segments: int, chance: random.Random) -> bytes:
    """One segment of 20 is marked, and one of 500 is lost."""
    fates, weights = (Step.PASS, Step.MARK, Step.DROP), (0.948, 0.05, 0.002)
    return bytes(chance.choices(fates, weights, k=segments))


SCRIPTS = {
    "1 in 3": lambda segments, chance: marked_every(3, segments, chance),
    "1 in 10": lambda segments, chance: marked_every(10, segments, chance),
    "1 in 40": lambda segments, chance: marked_every(40, segments, chance),
    "random, 0.02": lambda segments, chance: marked(0.02, segments, chance),
    "random, 0.2": lambda segments, chance: marked(0.2, segments, chance),
    "bursts of marks": marked_in_bursts,
    "marks and losses": marked_and_lost,
}


def kernel_alpha(wire: Wire) -> float:
    """The estimate of the sender's only connection, as `ss` shows it."""
    command = ("ip", "netns", "exec", wire.sender.name, "ss", "-tinH", "state", "established")
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = re.search(r"dctcp:\(.*?alpha:(\d+)", shown)
    if found is None:
        raise click.ClickException(f"ss shows no alpha: {shown.strip()}")
    return int(found[1]) / KERNEL_ALPHA_ONE


def alpha_of(control: str, wire: Wire, connection: Connection) -> float:
    """The last estimate of a connection's sender."""
    return kernel_alpha(wire) if control == KERNEL else wire.sender_state(connection).alpha


def transfer(wire: Wire, control: str, script: bytes) -> dict[str, float]:
    """Send a script's segments under a control, which both ends have."""
    wire.play(script)
    with wire.connection(control, control) as connection:
        connection.send(len(script))
        alpha = alpha_of(control, wire, connection)
        replayed = [(ack, sender.alpha) for ack, sender in replay(wire.acks())]
        sent, echoed = echoes(connection)
    flights = [(ack.acked + ack.under_way) / MSS for ack, _ in replayed[WARM_UP_ACKS:]]
    kept = Step.DROP not in script  # a segment that is sent again has two marks and one echo
    return {
        "alpha": alpha,
        "error": abs(alpha - replayed[-1][1] / ONE),
        "flight": sum(flights) / len(flights),
        "wrong": sum(one != other for one, other in zip(sent, echoed, strict=False)) if kept else 0,
    }


def compared(wire: Wire, name: str, runs: int, segments: int) -> dict[str, object]:
    """The row of one script: the controls take turns, and each run has a script of its own."""
    found: dict[str, list[dict[str, float]]] = {KERNEL: [], OURS: []}
    for turn in range(runs):
        script = SCRIPTS[name](segments, random.Random(f"{name} {turn}"))  # noqa: S311 - marks, not a secret
        for control in (KERNEL, OURS) if turn % 2 else (OURS, KERNEL):
            found[control].append(transfer(wire, control, script))
    kernel, ours = found[KERNEL], found[OURS]
    both = list(zip(kernel, ours, strict=True))
    row: dict[str, object] = {"script": name}
    row["ratio"] = Spread.of([mine["flight"] / its["flight"] for its, mine in both])
    for label, of_control in (("kernel", kernel), ("weir", ours)):
        row[f"flight, {label}"] = Spread.of([one["flight"] for one in of_control])
        row[f"alpha, {label}"] = Spread.of([one["alpha"] for one in of_control])
        row[f"alpha error, {label}"] = f"{max(one['error'] for one in of_control):.5f}"
        row[f"wrong echoes, {label}"] = sum(one["wrong"] for one in of_control)
    return row


def require_kernel_dctcp() -> None:
    """Raise ClickException if this kernel has no DCTCP of its own."""
    with socket.socket() as probe:
        try:
            probe.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, KERNEL.encode())
        except OSError as error:
            remedy = "load the module tcp_dctcp, or use a kernel that has it"
            has = ", ".join(available())
            raise click.ClickException(
                f"this kernel has no dctcp ({error}; it has {has}): {remedy}"
            ) from error


@click.command(help=__doc__)
@click.option("--runs", default=6, show_default=True, type=click.IntRange(1))
@click.option("--segments", default=3000, show_default=True, type=click.IntRange(2000, 15_000))
@click.option("--json", "as_json", is_flag=True)
def main(runs: int, segments: int, as_json: bool) -> None:
    require_kernel_dctcp()
    sandbox.enter()
    with tempfile.TemporaryDirectory() as folder, scripted_wire(Path(folder), OURS) as wire:
        rows = [compared(wire, name, runs, segments) for name in SCRIPTS]
    present("weir_dctcp and the kernel's dctcp", list(rows[0]), rows, as_json)


if __name__ == "__main__":
    main()
