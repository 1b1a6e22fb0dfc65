"""Compare what attacks cost honest flows under a scheme and on the stock switch.

    python -m bench.attacks [--schemes A,B] [--attacks A,B] [--rounds N] [--record FILE]
        [--sessions N] [--json]

The network is the lab's star: one port of 100 Mbit/s with a queue of 150 KB, nothing pinned. Two honest
senders and the attacker's host each have a long flow to the root, and the root queries eight workers. In
each session of a scheme all attacks come one after another, for 4 s each after 3 quiet s. In each round the
stock switch (`plain`: no agent) has a session, and then every scheme. "none" is an attack that sends
nothing: it shows the noise of each column. --record appends each finished session to a file, and counts the
sessions that are in it already. --sessions ends the run after so many sessions. What a host gains by 60
connections if ports share by host: --schemes sccp-auto,sccp-by-host --attacks "none,60 connections".

"honest" is the goodput of the honest flows and the queries during the attack, divided by that on the stock
switch in the same round. "gain" is the goodput of the attacker's host during the attack, divided by its
goodput in the quiet seconds before. "stock gain" is the same on the stock switch. "alarm" is the p99 of the
time from a crossing of K to the arrival of its alarm in the controller, divided by that in all quiet
seconds. Only first alarms of an episode count, of all rounds together; "alarms" is their number.
"entries" are the flow entries of Open vSwitch at the end of the attack beyond those before, and "flows" are
all flows in the agent's table then. "normal s" is the time until the honest flows have 0.9 of their goodput
before the attack for a whole second, and the entries are as before. "honest" and the gains give the median
and the worst of the rounds, the last three columns the worst.
"""

from __future__ import annotations

import contextlib
import json
import re
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click

from bench.figures import present
from bench.hostile_hosts import ATTACKS, Scene
from bench.temporary import temporary_folder
from fabric_app.tables import LAYOUTS
from flowdb.models import AlarmRow
from mininet_topos.experiments.experiment import Case, Experiment
from mininet_topos.network.lab_network import Network, network_apart
from mininet_topos.results.summary import percentile
from mininet_topos.running.traffic_programs import SINK_PORT, WORKER_PORT
from openflow_ext.switch.dataplane.pinned_maps import PinnedMaps
from tests.support.lab.stage import Stage, in_host, stage

STOCK = "plain"
WORKERS, QUERY_BYTES, QUERY_GAP_MS = 8, 20_000, 100
QUIET_S, ATTACK_S, SETTLE_S, LOOK_S = 3, 4, 4, 1.0
NORMAL_S, HOSTS_NORMAL_S = 10.0, 60.0
LAST_TABLE = LAYOUTS[0].limits
NORMAL_PART, SLACK_ENTRIES = 0.9, 4
COLUMNS = (
    *("scheme", "attack", "honest", "gain", "stock gain", "alarm", "alarms"),
    *("entries", "flows", "normal s"),
)


@dataclass
class Window:
    """What happened in some seconds. Rates are in Mbit/s, times are Unix times in ns.

    ``alarms_us``: from the crossing to the record, for each first alarm of an episode.
    """

    honest_mbps: float
    attacker_mbps: float
    began_ns: int
    ended_ns: int
    entries: int
    flows: int
    alarms_us: list[float] = field(default_factory=list)


@dataclass
class Visit:
    """An attack and the quiet seconds before it. ``normal_s``: until all was normal; None: not in time."""

    before: Window
    attack: Window
    normal_s: float | None


Session = dict[str, Visit]
"""The visits of one session by attack."""


class Meter:
    """Goodput at the root by sending host, entries of the switch, and tracked flows."""

    def __init__(self, staged: Stage, net: Network) -> None:
        self._stage, self._net = staged, net
        self._attacker = net.senders[-1].IP()

    def received(self) -> dict[tuple[str, str, str], int]:
        """The payload bytes that each connection of the root has received."""
        ports = f"( sport = :{SINK_PORT} or dport = :{WORKER_PORT} )"
        found = {}
        for line in in_host(self._net.root, "ss", "-tinHO", "state", "established", ports).splitlines():
            _, _, local, peer, *_ = line.split()
            count = re.search(r"\bbytes_received:(\d+)", line)
            address, _, port = peer.rpartition(":")
            found[address, port, local] = int(count[1]) if count else 0
        return found

    def entries(self) -> int:
        """The flow entries of the switch."""
        return sum(len(self._stage.entries(table)) for table in range(LAST_TABLE + 1))

    def flows(self) -> int:
        """The tracked flows, with half-open ones; 0 without an agent."""
        if not self._stage.running.dataplane:
            return 0
        with contextlib.closing(PinnedMaps(self._stage.running.dataplane)) as maps:
            return sum(1 for _ in maps.flows())

    def watch(self, seconds: float) -> Window:
        """Wait, and return what happened meanwhile."""
        before, began, began_ns = self.received(), time.monotonic(), time.time_ns()
        time.sleep(seconds)
        after, took_s = self.received(), time.monotonic() - began
        rates = {True: 0.0, False: 0.0}
        for connection, count in after.items():
            came = count - before.get(connection, 0)
            rates[connection[0] == self._attacker] += 8e-6 * came / took_s
        return Window(rates[False], rates[True], began_ns, time.time_ns(), self.entries(), self.flows())

    def until_normal(self, quiet: Window, limit_s: float) -> float | None:
        """The time until goodput and entries are as in ``quiet``; None: longer than ``limit_s``."""
        began = time.monotonic()
        while (waited_s := time.monotonic() - began) < limit_s:
            now = self.watch(LOOK_S)
            carried = now.honest_mbps >= NORMAL_PART * quiet.honest_mbps
            if carried and now.entries <= quiet.entries + SLACK_ENTRIES:
                return round(waited_s, 1)
        return None


def scene_of(staged: Stage, net: Network, folder: Path, meter: Meter) -> Scene:
    """The scene of the attacks, with the ports of the long flows."""
    sending = [
        (address, int(port)) for address, port, local in meter.received() if local.endswith(f":{SINK_PORT}")
    ]
    attacker = net.senders[-1].IP()
    (own,) = [flow for flow in sending if flow[0] == attacker]
    return Scene(net, folder, [flow for flow in sending if flow != own], own, staged.port)


def first_alarms(rows: Sequence[AlarmRow]) -> Iterator[tuple[int, float]]:
    """The time and the latency in us of each first alarm of an episode."""
    raised: set[tuple[int, int]] = set()
    for row in rows:
        port = row.dpid, row.port_no
        if row.kind == "alarm" and port not in raised:
            yield row.received_ns, (row.received_ns - row.crossing_ns) / 1000
        (raised.add if row.kind == "alarm" else raised.discard)(port)


def session(net: Network, scheme: str, attacks: Sequence[str], folder: Path) -> Session:
    """All attacks under one scheme."""
    visits: Session = {}
    with stage(net, folder, scheme) as staged:
        for sender in net.senders:
            staged.start_long_flow(sender)
        staged.start_queries(QUERY_BYTES, QUERY_GAP_MS)
        time.sleep(SETTLE_S)
        meter = Meter(staged, net)
        scene = scene_of(staged, net, folder, meter)
        for name in attacks:
            quiet = meter.watch(QUIET_S)
            program = ATTACKS[name](scene)
            attack = meter.watch(ATTACK_S)
            program.check()
            program.stop()
            limit_s = HOSTS_NORMAL_S if name == "ARP flood" else NORMAL_S
            visits[name] = Visit(quiet, attack, meter.until_normal(quiet, limit_s))
        staged.running.check()
        rows = staged.rows(AlarmRow)
    for received_ns, latency_us in first_alarms(rows):
        for window in windows(visits):
            if window.began_ns <= received_ns < window.ended_ns:
                window.alarms_us.append(latency_us)
    return visits


def windows(visits: Session) -> Iterator[Window]:
    for visit in visits.values():
        yield visit.before
        yield visit.attack


def gain(visit: Visit) -> float:
    return visit.attack.attacker_mbps / visit.before.attacker_mbps


def row(scheme: str, attack: str, pairs: Sequence[tuple[Session, Session]]) -> dict[str, Any]:
    """The figures of an attack over all pairs of sessions (stock, scheme)."""
    honest = [ours[attack].attack.honest_mbps / stock[attack].attack.honest_mbps for stock, ours in pairs]
    gains = [gain(ours[attack]) for _, ours in pairs]
    stock_gains = [gain(stock[attack]) for stock, _ in pairs]
    alarms = [latency for _, ours in pairs for latency in ours[attack].attack.alarms_us]
    quiet = [us for _, ours in pairs for visit in ours.values() for us in visit.before.alarms_us]
    visits = [ours[attack] for _, ours in pairs]
    normal = [visit.normal_s for visit in visits if visit.normal_s is not None]
    return {
        "scheme": scheme,
        "attack": attack,
        "honest": f"{statistics.median(honest):.2f}, {min(honest):.2f}",
        "gain": f"{statistics.median(gains):.2f}, {max(gains):.2f}",
        "stock gain": f"{statistics.median(stock_gains):.2f}, {max(stock_gains):.2f}",
        "alarm": round(percentile(alarms, 99) / percentile(quiet, 99), 2) if alarms and quiet else "",
        "alarms": len(alarms),
        "entries": max(visit.attack.entries - visit.before.entries for visit in visits),
        "flows": max(visit.attack.flows for visit in visits),
        "normal s": max(normal) if len(normal) == len(visits) else "not in time",
    }


def recorded(record: Path | None) -> list[tuple[str, Session]]:
    """The sessions in a record, each with its scheme."""
    lines = record.read_text().splitlines() if record and record.exists() else []
    return [
        (one["scheme"], {name: _visit(**v) for name, v in one["visits"].items()})
        for one in map(json.loads, lines)
    ]


def _visit(before: dict[str, Any], attack: dict[str, Any], normal_s: float | None) -> Visit:
    return Visit(Window(**before), Window(**attack), normal_s)


def order(schemes: Sequence[str], rounds: int) -> list[str]:
    """The schemes of all sessions: in each round the stock switch and then every scheme."""
    return [name for _ in range(rounds) for name in (STOCK, *schemes)]


def run_sessions(
    wanted: Sequence[str], attacks: Sequence[str], record: Path | None
) -> list[tuple[str, Session]]:
    """Run a session of each of these schemes, and record each when it has ended."""
    case = Case("attacks", "attacks", WORKERS, QUERY_BYTES, background=3, queries=1)
    experiment = Experiment(
        name="attacks",
        cases=(case,),
        schemes=(STOCK,),
        bandwidth_mbps=100,
        queue_bytes=150_000,
        pinned=False,
    )
    done = []
    for name in wanted:
        with temporary_folder() as folder, network_apart(experiment.layout, pinned=False) as net:
            done.append((name, session(net, name, attacks, folder)))
        if record:
            visits = {attack: asdict(visit) for attack, visit in done[-1][1].items()}
            with record.open("a") as file:
                file.write(json.dumps({"scheme": name, "visits": visits}) + "\n")
    return done


def rows(
    schemes: Sequence[str], attacks: Sequence[str], done: Sequence[tuple[str, Session]]
) -> list[dict[str, Any]]:
    """The figures of all complete rounds."""
    size = 1 + len(schemes)
    rounds = [dict(done[at : at + size]) for at in range(0, len(done) - size + 1, size)]
    pairs = {name: [(one[STOCK], one[name]) for one in rounds] for name in schemes}
    return [row(name, attack, pairs[name]) for name in schemes for attack in attacks if rounds]


@click.command(help=__doc__)
@click.option("--schemes", default="sccp-auto,sdtcp-auto", show_default=True)
@click.option("--attacks", default=",".join(ATTACKS), show_default=True)
@click.option("--rounds", default=3, show_default=True)
@click.option("--record", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--sessions", default=1000, help="End after so many sessions.")
@click.option("--json", "as_json", is_flag=True)
def main(schemes: str, attacks: str, rounds: int, record: Path | None, sessions: int, as_json: bool) -> None:
    names, listed = attacks.split(","), schemes.split(",")
    if unknown := set(names) - set(ATTACKS):
        raise click.ClickException(f"no attack is called {unknown.pop()!r}: use some of {', '.join(ATTACKS)}")
    done = recorded(record)
    wanted = order(listed, rounds)[len(done) :][:sessions]
    done += run_sessions(wanted, names, record)
    present("attacks", COLUMNS, rows(listed, names, done), as_json)


if __name__ == "__main__":
    main()
