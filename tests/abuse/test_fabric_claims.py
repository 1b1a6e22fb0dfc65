"""A hostile host behind one port of the fabric: real switches, real controllers, real hosts."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fabric_app.frames import PROBE_MAC
from fabric_app.rates import BURST_S
from flowdb.models import FlowRow, LinkRow
from mininet_topos.running.scheme_programs import free_port
from tests.support.agent.switch_bench import run
from tests.support.data_plane.packets import RST, SYN, Segment
from tests.support.lab.diamond import Bench, diamond, ended
from tests.support.waiting import wait_until

LAB = Path(__file__).parents[1] / "support/lab"
FORGE = str(LAB / "forged_arp.py")
COUNT, COUNT_WITH_AGENT, SECONDS = 16_400, 60_000, 5
"""The announcements of a flood. The meters of the port drop most of them."""
FLOOD_PER_S, FLOOD_FRAMES = 4000, 10_000
METER_RATES = {"answers": 256, "segments": 1000, "packet-ins": 200}
"""The meters of a port in the order of their ids, from the greatest down, with their packets per second."""
OTHER_PACKET_INS = 150
"""LLDP frames, and the frames of real hosts, during a flood."""
PORT_HOSTS = 256
ENTRIES_OF_A_HOST = 2
JOINS_S = 4.0
"""A real host reaches others within this time. Its first pings may wait for the port to settle (0.5 s)."""
NORMAL_S = 60.0
MOVES_S = 5.0
NEW_MAC = "00:00:00:00:04:04"
HOSTILE = "0000000000000001:2"
METRICS = free_port()
SERVED_PORT = 5080


@pytest.fixture(scope="module", params=[("ryu", "13", False), ("os-ken", "15", True)], ids=["ryu", "os-ken"])
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    engine, version, extended = request.param
    settings = f"metrics = '127.0.0.1:{METRICS}'"
    with diamond(tmp_path_factory.mktemp("fabric"), engine, version, settings, extended) as bench:
        wait_until(lambda: len([row for row in bench.rows(LinkRow) if row.up]) == 8, "four links both ways")
        for src, address in (("h1", "10.0.0.3"), ("h3", "10.0.0.2")):
            wait_until(lambda src=src, address=address: bench.ping(src, address), f"{src} reaches {address}")
        yield bench


def forge(bench: Bench, *argv: object) -> subprocess.Popen[str]:
    return bench.popen("h2", sys.executable, "-I", FORGE, "h2-eth0", *(str(arg) for arg in argv))


def entries(bench: Bench, number: int) -> int:
    return bench.dump_flows(number).count("priority=")


def refused(reason: str) -> float:
    """How much the controller refused to the hostile host's port, by its metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{METRICS}/metrics") as answer:
        text = answer.read().decode()
    dpid, port_no = HOSTILE.split(":")
    labels = f'dpid="{dpid}",port_no="{port_no}",reason="{reason}"'
    return sum(float(n) for n in re.findall(rf"weir_fabric_refused_total{{{labels}}} (\S+)", text))


def dropped() -> int:
    """The packet-ins that Open vSwitch has dropped, of all switches."""
    status = run("ovs-vsctl", "--columns=status", "list", "controller")
    return sum(int(count) for count in re.findall(r'packet-in-\w+-dropped="?(\d+)', status))


def meters_of_the_port(bench: Bench) -> dict[str, int]:
    """The ids of the meters of the hostile host's port."""
    ids = {int(found) for found in re.findall(r"in_port=2[ ,].*meter_id=(\d+)", bench.dump_flows(1))}
    return dict(zip(METER_RATES, sorted(ids, reverse=True), strict=True))


def dropped_by_meters(bench: Bench) -> dict[str, int]:
    """The frames that each meter of the hostile host's port has dropped."""
    found = re.findall(r"meter:(\d+) [^\n]*\n\d+: packet_count:(\d+)", bench.meter_stats(1))
    counts = {int(meter): int(count) for meter, count in found}
    return {name: counts[meter] for name, meter in meters_of_the_port(bench).items()}


def announcement(chance: random.Random) -> bytes:
    mac, ip = bytes([2, *chance.randbytes(5)]), bytes([10, 0, *chance.randbytes(2)])
    return b"\xff" * 6 + mac + bytes.fromhex("08060001080006040001") + mac + ip + bytes(6) + ip


def answer_to_a_probe(chance: random.Random) -> bytes:
    return bytes.fromhex(PROBE_MAC.replace(":", "")) + announcement(chance)[6:]


def opening_segment(chance: random.Random) -> bytes:
    segment = Segment(src="10.0.0.2", dst="10.0.0.3", src_port=chance.randrange(1024, 65536), flags=SYN)
    return bytes.fromhex("000000000003") + bytes([2, *chance.randbytes(5)]) + segment.pack()[12:]


def place_of(bench: Bench, mac: str) -> str:
    """The output of switch 4's entry for a host."""
    found = re.search(rf"dl_dst={mac} actions=(\S+)", bench.dump_flows(4))
    return found[1] if found else ""


def reaches_everybody(bench: Bench, host: str, address: str) -> bool:
    others = {f"10.0.0.{number}" for number in (1, 3, 4)} - {address}
    return all(bench.ping(host, other) for other in others) and bench.ping("h1", address)


def flows_of(bench: Bench, client_port: int) -> list[tuple[int, str | None]]:
    """The ids of a connection's flows, each with the reason for its end."""
    rows = (row for row in bench.rows(FlowRow) if client_port in (row.src_port, row.dst_port))
    return sorted((row.id, row.close_reason) for row in rows)


def test_forged_resets_end_no_flow_for_the_controller(bench: Bench, tmp_path: Path) -> None:
    """A segment with a new source MAC address is copied to the controller."""
    bench.serve("h3", SERVED_PORT)
    caller, (port,) = bench.call("h1", "10.0.0.3", SERVED_PORT, 1)
    known = wait_until(lambda: flows_of(bench, port), "both flows are known", lambda found: len(found) == 2)
    there = Segment(src="10.0.0.1", dst="10.0.0.3", src_port=port, dst_port=SERVED_PORT, flags=RST)
    back = Segment(src="10.0.0.3", dst="10.0.0.1", src_port=SERVED_PORT, dst_port=port, flags=RST)
    forged = [f"00000000000{to}0200000000aa{one.pack()[12:].hex()}\n" for to, one in ((3, there), (1, back))]
    file = tmp_path / "frames"
    file.write_text("".join(10 * forged))
    with file.open() as lines:
        argv = (sys.executable, "-I", str(LAB / "inject.py"), "h2-eth0", "10")
        assert bench.popen("h2", *argv, stdin=lines).wait() == 0
    second, (later,) = bench.call("h1", "10.0.0.3", SERVED_PORT, 1)
    wait_until(lambda: flows_of(bench, later), "what came before is recorded", lambda found: len(found) == 2)
    assert flows_of(bench, port) == known == [(known[0][0], None), (known[1][0], None)]
    assert [len(ended(one)) for one in (caller, second)] == [1, 1], "nor did the hosts believe them"


def test_a_flood_of_forged_hosts_harms_no_other_port(bench: Bench) -> None:
    before = {number: entries(bench, number) for number in (1, 4)}
    logged = len(bench.log())
    frames = COUNT_WITH_AGENT if bench.extended else COUNT
    flood = forge(bench, frames, SECONDS)
    wait_until(lambda: dropped_by_meters(bench)["packet-ins"], "the flood is above the limit")
    new = bench.net["h4"]
    for change in ("down", f"address {NEW_MAC}", "up"):
        new.cmd(f"ip link set {new.defaultIntf()} {change}")
    begun = time.monotonic()
    wait_until(lambda: reaches_everybody(bench, "h4", "10.0.0.4"), "the new host reaches all others")
    joined_s = time.monotonic() - begun
    assert flood.poll() is None, "the flood goes on"
    assert flood.wait() == 0
    most = {number: entries(bench, number) for number in (1, 4)}
    begun = time.monotonic()
    slack = 3 * ENTRIES_OF_A_HOST
    for number in (1, 4):
        wait_until(
            lambda number=number: entries(bench, number),
            "the tables are as before",
            lambda count, number=number: count <= before[number] + slack,
            NORMAL_S,
        )
    wait_until(lambda: refused("packet-ins"), "the metric counts it", lambda count: count > frames / 2)
    counts = {reason: refused(reason) for reason in ("packet-ins", "new-hosts", "hosts")}
    counts["dropped by Open vSwitch"] = dropped()
    print(before, most, f"joined {joined_s:.1f} s, normal {time.monotonic() - begun:.1f} s", counts)
    assert joined_s < JOINS_S
    assert max(most[number] - before[number] for number in (1, 4)) <= PORT_HOSTS * ENTRIES_OF_A_HOST + slack
    assert counts["dropped by Open vSwitch"] == 0, "the meters leave nothing to drop"
    log = bench.log()[logged:]
    assert f"port {HOSTILE}: refused" in log
    assert len(log.splitlines()) < 100, log
    assert "lost" not in log, "no link was lost"
    assert "Traceback" not in log, log
    assert reaches_everybody(bench, "h4", "10.0.0.4")
    assert place_of(bench, NEW_MAC) == "output:4"


@pytest.mark.parametrize(
    ("kind", "frame"),
    [("packet-ins", announcement), ("answers", answer_to_a_probe), ("segments", opening_segment)],
)
def test_the_meters_of_a_port_bound_its_packet_ins(
    bench: Bench, kind: str, frame: Callable[[random.Random], bytes], tmp_path: Path
) -> None:
    chance, frames = random.Random(21), FLOOD_FRAMES
    file = tmp_path / "frames"
    file.write_text("".join(f"{frame(chance).hex()}\n" for _ in range(frames)))
    time.sleep(BURST_S)  # the meters allow a whole burst again
    before, began = dropped_by_meters(bench), time.monotonic()
    with bench.snooping(1) as heard, file.open() as lines:
        argv = (sys.executable, "-I", str(LAB / "inject.py"), "h2-eth0", str(FLOOD_PER_S))
        flood = bench.popen("h2", *argv, stdin=lines)
        wait_until(lambda: dropped_by_meters(bench)[kind] > before[kind], "the meter drops frames")
        neighbour = bench.net["h1"]
        number = 20 + list(METER_RATES).index(kind)
        for change in (
            *("link set {} down", f"link set {{}} address 00:00:00:00:00:{number}", "link set {} up"),
            *("addr flush dev {}", f"addr add 10.0.0.{number}/24 dev {{}}"),
        ):
            neighbour.cmd(f"ip {change.format(neighbour.defaultIntf())}")
        begun = time.monotonic()
        wait_until(lambda: bench.ping("h1", "10.0.0.3"), "a new host beside it reaches another one")
        learnt_s = time.monotonic() - begun
        assert flood.poll() is None, "the flood goes on"
        assert flood.wait() == 0
        took_s = time.monotonic() - began
    dropped_now = {name: count - before[name] for name, count in dropped_by_meters(bench).items()}
    packet_ins = heard.count("PACKET_IN")
    allowed = METER_RATES[kind] * (took_s + BURST_S)
    print(
        f"{kind}: {packet_ins} packet-ins of {frames} frames, dropped {dropped_now}, learnt {learnt_s:.1f} s"
    )
    assert learnt_s < JOINS_S
    assert dropped_now[kind] > 0.9 * (frames - allowed)
    assert packet_ins < allowed + OTHER_PACKET_INS
    assert [name for name, count in dropped_now.items() if count] == [kind]
    assert "Traceback" not in bench.log()


def test_an_address_that_answers_stays_and_one_that_does_not_moves(bench: Bench) -> None:
    victim = bench.net["h3"]
    assert bench.ping("h1", "10.0.0.3")
    before = refused("address")
    assert forge(bench, 20, 4, victim.MAC(), "10.0.0.3").wait() == 0
    assert refused("address") > before
    assert place_of(bench, victim.MAC()) == "output:3"
    assert bench.ping("h1", "10.0.0.3", 3)
    victim.cmd(f"ip addr flush dev {victim.defaultIntf()}")
    begun = time.monotonic()
    mover = forge(bench, 60, 6, victim.MAC(), "10.0.0.3")
    wait_until(lambda: place_of(bench, victim.MAC()), "the address has moved", lambda out: out != "output:3")
    moved_s = time.monotonic() - begun
    print(f"moved after {moved_s:.1f} s")
    assert moved_s < MOVES_S
    assert mover.wait() == 0
    assert "Traceback" not in bench.log()
