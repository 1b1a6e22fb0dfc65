"""A hostile host with a raw socket beside a real stream: forged SYN, FIN and RST, and a flood of SYNs."""

from __future__ import annotations

import contextlib
import json
import random
import sys
from collections import Counter
from dataclasses import replace

import pytest

from openflow_ext import wire
from openflow_ext.switch.dataplane.pinned_maps import PinnedMaps
from openflow_ext.switch.dataplane.tracked_flows import TrackedFlow
from tests.support.agent.streaming import await_clamps, clamped_streaming
from tests.support.agent.switch_bench import Bench, Controller, run
from tests.support.data_plane.bench import reverse, syn
from tests.support.data_plane.packets import ACK, FIN, RST, SYN, Offer, Segment
from tests.support.openflow.flow_mods import TCP4, ext, flow_mod, ofproto, output
from tests.support.waiting import wait_until
from weir_base.paths import PROJECT

pytestmark = pytest.mark.beside_others

LAB = PROJECT / "tests/support/lab"
NORMAL = output(ofproto.OFPP_NORMAL)
PORT = 5001
CLAMP = wire.SetWindow(6144)
COUNT = wire.IncrementNi(ofproto.OFPP_ANY)
FORGED = 200
FLOOD_PER_S, FLOOD = 1000, 2500
STREAM = Segment(src="10.77.0.1", dst="10.77.0.2", dst_port=PORT)


@pytest.fixture
def counting(bench: Bench, joined: Controller) -> Controller:
    """A controller that clamps all TCP, and counts SYNs."""
    syns = TCP4 | {"tcp_flags": (SYN, SYN)}
    joined.send(
        flow_mod({}, [NORMAL], xid=4),
        flow_mod(TCP4, [ext(CLAMP), NORMAL], priority=7, xid=5),
        flow_mod(syns, [ext(COUNT), NORMAL], priority=8, xid=6),
    )
    assert joined.barrier() == []
    return joined


def flows_at_2(bench: Bench) -> list[TrackedFlow]:
    """The flows whose receiver is host 2."""
    with contextlib.closing(PinnedMaps(bench.name)) as maps:
        return [flow for flow in maps.flows() if flow.local == STREAM.dst]


def mac(bench: Bench, number: int) -> bytes:
    (link,) = json.loads(run("ip", "-n", bench.host(number), "-j", "link", "show", "eth0"))
    return bytes.fromhex(link["address"].replace(":", ""))


def inject(bench: Bench, number: int, segments: list[Segment], per_second: int) -> None:
    """Host ``number`` sends the segments to the other host, whatever their addresses are."""
    macs = mac(bench, 3 - number) + mac(bench, number)
    lines = "".join(f"{(macs + segment.pack()[12:]).hex()}\n" for segment in segments)
    program = (sys.executable, "-I", str(LAB / "inject.py"), "eth0", str(per_second))
    run(*bench.inside(number, *program), input=lines)


def forgeries(stream: Segment, chance: random.Random) -> list[Segment]:
    """As the issue has them: wrong checksums, and numbers that are guessed."""
    made = []
    for _ in range(FORGED):
        flags = chance.choice((SYN, SYN | ACK, RST, RST | ACK, FIN | ACK))
        options = Offer(mss=536, scale=0).pack() if flags & SYN else b""
        seq, ack = chance.getrandbits(32), chance.getrandbits(32)
        forged = replace(stream, flags=flags, seq=seq, ack=ack, options=options)
        made.append(chance.choice((forged, forged.with_wrong_checksum())))
    return made


def test_forged_segments_do_not_change_a_running_flow(bench: Bench, counting: Controller) -> None:
    chance = random.Random(21)
    with clamped_streaming(bench) as finish:
        (flow,) = flows_at_2(bench)
        before = bench.port_counters(2)
        stream = replace(STREAM, src_port=flow.remote_port)
        inject(bench, 1, forgeries(stream, chance), 500)
        inject(bench, 2, forgeries(reverse(stream), chance), 500)
        await_clamps(bench)
        after = bench.port_counters(2)
        (still,) = flows_at_2(bench)
        sent, came = finish()

    assert (before.n_i, after.n_i) == (1, 1)
    assert (still.state, still.local_scale, still.local_mss) == (
        "established",
        flow.local_scale,
        flow.local_mss,
    )
    assert after.unscaled == before.unscaled, "it is clamped on"
    assert after.disbelieved - before.disbelieved > FORGED
    assert came == sent > 0


def test_a_flood_of_syns_counts_no_flow_and_leaves_within_its_time(
    bench: Bench, counting: Controller
) -> None:
    """The flood has false addresses, so that no handshake is completed."""
    chance = random.Random(22)
    flood = [
        syn(
            replace(STREAM, src=f"10.77.9.{chance.randrange(1, 255)}", src_port=chance.randrange(1024, 65536))
        )
        for _ in range(FLOOD)
    ]
    with clamped_streaming(bench) as finish:
        inject(bench, 1, flood, FLOOD_PER_S)
        counters, states = bench.port_counters(2), Counter(flow.state for flow in flows_at_2(bench))
        bench.connect_once(PORT + 1)
        sent, came = finish()

    assert (counters.n_i, counters.untracked) == (1, 0)
    assert states["established"] == 1
    assert 0 < states["opening"] <= FLOOD
    assert came == sent > 0
    wait_until(
        lambda: not any(flow.state == "opening" for flow in flows_at_2(bench)), "they leave", timeout_s=20
    )
