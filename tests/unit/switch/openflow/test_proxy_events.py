"""Queue events and the port descriptions in them, on sessions over real sockets."""

from __future__ import annotations

import dataclasses
import struct
from ipaddress import IPv4Address

from openflow_ext import wire
from openflow_ext.switch.dataplane.interface import QueueEvent, QueueEventKind
from openflow_ext.switch.openflow import messages as of
from tests.support.agent.proxy_bench import (
    FEATURES,
    PORT,
    Bench,
    Play,
    barrier,
    echo,
    port_descriptions,
)
from tests.support.openflow.flow_mods import datapath, parser, serialized

ON, OFF = QueueEventKind.REFLEX_ON, QueueEventKind.REFLEX_OFF
WHEN_NS = 1_700_000_000_000_000_000


def event(normal: bool = False, ifindex: int = 11) -> QueueEvent:
    kind = QueueEventKind.BUF_NORMAL if normal else QueueEventKind.BUF_ALARM
    return QueueEvent(ifindex, kind, 31, 46934, 4, WHEN_NS)


def tell(bench: Bench, happened: QueueEvent) -> None:
    port = bench.bridge.ports.get(happened.ifindex)
    assert port is not None
    for proxied in bench.proxy.sessions:
        proxied.notify(proxied.session.event(port, happened, port.switched(happened)))


def test_alarms_go_to_sessions_whose_handshake_is_complete(play: Play) -> None:
    async def script(bench: Bench) -> None:
        bench.bridge.ports.configure(1, alarm=True, k_pkts=30, cookie=7, priority=3)
        early = await bench.join()
        _, controller = await bench.join_ready()
        tell(bench, event())
        tell(bench, event(normal=True))
        expected = (PORT, 31, 46934, 10**8, 7, 3, 4, 1_700_000_000_000_000_000)
        assert wire.decode_message(await controller.message()) == wire.BufAlarm(*expected)
        assert wire.decode_message(await controller.message()) == wire.BufNormal(*expected)
        early[0].send(echo(1))
        assert await early[1].message() == echo(1)

    play(script)


def test_port_status_updates_the_port_description(play: Play) -> None:
    async def script(bench: Bench) -> None:
        switch, controller = await bench.join_ready()
        for reason, name in ((2, b"renamed"), (1, b"")):
            body = struct.pack("!B7x", reason) + wire.encode_port(wire.OfpPort(1, name=name))
            status = of.HEADER.pack(4, of.OFPT_PORT_STATUS, 8 + len(body), 0) + body
            switch.send(status)
            assert await controller.message() == status
            tell(bench, event())
            if name:
                assert wire.decode_message(await controller.message()).port.name == name  # type: ignore[union-attr]
        switch.send(echo(2))
        assert await controller.message() == echo(2)

    play(script)


def test_the_controller_s_own_port_desc_request_is_answered(play: Play) -> None:
    async def script(bench: Bench) -> None:
        switch, controller = await bench.join()
        switch.send(FEATURES)
        await controller.message()
        request = await switch.message()
        xid = of.HEADER.unpack_from(request)[3]
        theirs = serialized(parser.OFPPortDescStatsRequest(datapath, 0), xid=xid)
        controller.send(theirs)
        assert await switch.message() == theirs
        first, last = port_descriptions(xid, PORT, more=True), port_descriptions(xid, PORT)
        switch.send(first, last, first, last)
        assert await controller.message() == first
        assert await controller.message() == last

    play(script)


def test_native_framing_is_the_paper_s_form(play: Play) -> None:
    async def script(bench: Bench) -> None:
        bench.bridge.framing = "native"
        _, controller = await bench.join_ready()
        tell(bench, event())
        message = await controller.message()
        assert message[1] == wire.OFPT_BUF_ALARM
        assert wire.decode_message(message).port_buf_pkts == 31  # type: ignore[union-attr]

    play(script)


def test_every_step_of_the_reflex_is_reported(play: Play) -> None:
    async def script(bench: Bench) -> None:
        switch, controller = await bench.join_ready()
        addresses = IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2")
        entries = tuple(wire.ArmEntry(*addresses, 80, n, 1536, cookie=100 + n) for n in range(3))
        controller.send(wire.encode_message(wire.Arm(1, entries), xid=3), barrier(4))
        assert await switch.message() == barrier(4)
        for kind, rank in ((ON, 0), (ON, 1), (OFF, 0)):
            tell(bench, QueueEvent(11, kind, 1, 2, 4, WHEN_NS, rank))
        told = [wire.decode_message(await controller.message()) for _ in range(4)]
        assert told == [
            wire.Reflex(1, rank, on, n_i=4, cookie=100 + rank, when_ns=WHEN_NS)
            for rank, on in ((0, True), (1, True), (0, False), (1, False))
        ]

    play(script)


def test_openflow_1_5_has_its_own_port_description(play: Play) -> None:
    odd = bytes.fromhex("ffff000c0000000100000002")
    ports = wire.OfpPort(1, name=b"one", properties=(odd,)), wire.OfpPort(2, name=b"two", ethernet=False)

    async def script(bench: Bench) -> None:
        switch, controller = await bench.join()
        features = bytes([6]) + FEATURES[1:]
        switch.send(features)
        assert await controller.message() == features
        request = await switch.message()
        body = struct.pack("!HH4x", of.OFPMP_PORT_DESC, 0) + b"".join(wire.encode_port(p, 6) for p in ports)
        switch.send(of.HEADER.pack(6, 19, 8 + len(body), of.HEADER.unpack_from(request)[3]) + body)
        body = struct.pack("!B7x", 2) + wire.encode_port(dataclasses.replace(ports[0], name=b"renamed"), 6)
        status = of.HEADER.pack(6, of.OFPT_PORT_STATUS, 8 + len(body), 0) + body
        switch.send(status)
        assert await controller.message() == status
        tell(bench, event())
        alarm = wire.decode_message(await controller.message())
        assert alarm.port == dataclasses.replace(ports[0], name=b"renamed")  # type: ignore[union-attr]

    play(script)


def test_invalid_port_descriptions_are_ignored(play: Play) -> None:
    async def script(bench: Bench) -> None:
        switch, controller = await bench.join()
        features = bytes([6]) + FEATURES[1:]
        switch.send(features)
        await controller.message()
        request = await switch.message()
        body = struct.pack("!HH4x", of.OFPMP_PORT_DESC, 0) + bytes(7)
        switch.send(of.HEADER.pack(6, 19, 8 + len(body), of.HEADER.unpack_from(request)[3]) + body)
        short = of.HEADER.pack(6, of.OFPT_PORT_STATUS, 12, 0) + bytes(4)
        switch.send(short, echo(3))
        assert await controller.message() == short
        assert await controller.message() == echo(3)

    play(script)
