"""The agent's OpenFlow proxy: sessions that get mangled messages from either side.

A session answers each message or passes it on. It may raise nothing, and hold no more rules than fit.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from ipaddress import IPv4Address

from openflow_ext import wire
from openflow_ext.switch.openflow import messages as of
from openflow_ext.switch.openflow.bridge import Bridge
from openflow_ext.switch.openflow.extension_rules import find_tcp_match
from openflow_ext.switch.openflow.extension_table import ExtensionTable
from openflow_ext.switch.openflow.flow_reports import FlowReports
from openflow_ext.switch.openflow.session import FROM_CONTROLLER, FROM_SWITCH, Session
from openflow_ext.switch.ovs.ports import Link, Ports
from tests.support.agent.fake_data_plane import FakeDataPlane
from tests.support.agent.proxy_bench import FEATURES, PORT, port_descriptions
from tests.support.openflow.bundles import bundle, role
from tests.support.openflow.flow_mods import TCP4, ext, flow_mod, ofproto, output
from tests.support.openflow.flow_stats import entry_13, entry_15, reply

A_LIFE = 500
SET = ext(wire.SetWindow())
ARM = wire.Arm(1, (wire.ArmEntry(IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2"), 1, 2, 1536),))
DELETE = flow_mod({}, command=ofproto.OFPFC_DELETE, table_id=ofproto.OFPTT_ALL)
MODIFY = flow_mod(actions=[SET], command=ofproto.OFPFC_MODIFY, table_id=3)
SEEDS = [
    flow_mod(actions=[SET, output(3)], priority=5, table_id=3),
    flow_mod(TCP4, [output(3)], priority=5, table_id=3),
    MODIFY,
    DELETE,
    bundle(34, struct.pack("!IHH", 7, 0, 3) + DELETE),
    bundle(34, struct.pack("!IHH", 7, 0, 3) + MODIFY),
    bundle(33, struct.pack("!IHH", 7, 4, 3)),
    role(24, 2),
    role(25, 3),
    FEATURES,
    port_descriptions(7, PORT),
    reply(4, entry_13(), entry_13(6)),
    reply(6, entry_15()),
    of.error(flow_mod(actions=[output(3)], priority=5, table_id=3), 2, 3),
    of.HEADER.pack(4, of.OFPT_PORT_STATUS, 80, 0) + bytes(8) + wire.encode_port(PORT),
    *(
        wire.encode_message(message)
        for message in (
            wire.PortConfig(1, wire.PortConfigFlags.ALARM, 20, 100),
            wire.PortCountersRequest(),
            ARM,
            wire.FlowReportConfig(wire.FlowKinds.OPENED),
        )
    ),
]


class Sessions:
    """One session on a bridge with a port. The agent's own requests get random answers."""

    def __init__(self) -> None:
        self.plane = FakeDataPlane(room=8)
        ports = Ports(1, self.plane)
        ports.sync([Link(11, "s1-eth1", 1)], {})
        table = ExtensionTable(1, self.plane)
        self.session = Session(
            Bridge("s1", 1, self.plane, ports, table, FlowReports(self.plane)), "c", lambda _: True
        )

    def feed(self, message: bytes, from_switch: bool) -> bytes:
        """Handle a message. A request of the agent to Open vSwitch is answered without entries."""
        act_on = FROM_SWITCH if from_switch else FROM_CONTROLLER
        if message[1] not in act_on:
            return b""
        verdict = (self.session.from_switch if from_switch else self.session.from_controller)(message)
        if verdict.hold:
            entries = reply(message[0], entry_13() if message[0] < of.OFP15 else entry_15())
            for request in messages(verdict.forward):
                assert self.session.holding
                if request[1] == of.OFPT_ROLE_REQUEST:
                    self.session.from_switch(
                        of.resized(request[:1] + bytes([of.OFPT_ROLE_REPLY]) + request[2:])
                    )
                    continue
                told = entries[8:] if request[8:10] == entries[8:10] else request[8:] + bytes(1056)
                self.session.from_switch(of.resized(entries[:4] + request[4:8] + told))
            assert not self.session.holding
        return verdict.forward + verdict.answer


def messages(data: bytes) -> Iterator[bytes]:
    while data:
        size = int.from_bytes(data[2:4], "big")
        yield data[:size]
        data = data[size:]


def mangled(rng: random.Random) -> bytes:
    """A seed with some bytes changed, removed or added, behind a header with the right length."""
    data = bytearray(rng.choice(SEEDS))
    for _ in range(rng.choice((0, 1, 1, 2, 5))):
        data[rng.randrange(len(data))] = rng.choice((0, 1, 4, 8, 0xFF, rng.randrange(256)))
    if rng.random() < 0.3:
        del data[rng.randrange(8, len(data) + 1) :]
    if rng.random() < 0.1:
        data += rng.randbytes(rng.randrange(64))
    if rng.random() < 0.5:
        data[0], data[1] = rng.choice((4, 5, 6)), rng.choice(sorted(FROM_CONTROLLER | FROM_SWITCH))
    data[0] = max(1, min(data[0], of.OFP15))
    data[2:4] = len(data).to_bytes(2, "big")
    return bytes(data)


class ProxyTarget:
    """A session of the agent, which ends after A_LIFE messages."""

    def __init__(self) -> None:
        self._sessions = Sessions()
        self._fed = 0

    def begin(self) -> None:
        """A new session. The agent remembers up to 65,536 matches, which would hide a leak."""
        find_tcp_match.cache_clear()
        self._sessions.plane.destroy()
        self._sessions, self._fed = Sessions(), 0

    def feed(self, rng: random.Random) -> bool:
        if self._fed == A_LIFE:
            self.begin()
        self._fed += 1
        answered = self._sessions.feed(mangled(rng), rng.random() < 0.5)
        if len(self._sessions.plane.held) > self._sessions.plane.room:
            raise AssertionError("the table holds more rules than fit")
        return bool(answered)

    def close(self) -> None:
        self._sessions.plane.destroy()
