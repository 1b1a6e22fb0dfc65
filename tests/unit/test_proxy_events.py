"""Queue events and the port descriptions in them, on sessions over real sockets."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from openflow_ext import wire
from openflow_ext.switch import openflow as of
from openflow_ext.switch.dataplane import QueueEvent, QueueEventKind
from tests.unit.flowmods import datapath, parser, serialized
from tests.unit.proxy_bench import FEATURES, PORT, Bench, Script, echo, perform, port_descriptions

Play = Callable[[Script], None]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    return lambda script: perform(script, tmp_path)


def event(normal: bool = False, ifindex: int = 11) -> QueueEvent:
    kind = QueueEventKind.BUF_NORMAL if normal else QueueEventKind.BUF_ALARM
    return QueueEvent(ifindex, kind, 31, 46934, 4, 1_700_000_000_000_000_000)


def tell(bench: Bench, happened: QueueEvent) -> None:
    port = bench.bridge.ports.get(happened.ifindex)
    assert port is not None
    for proxied in bench.proxy.sessions:
        proxied.notify(proxied.session.event(port, happened))


def test_alarms_go_to_sessions_whose_handshake_is_through(play: Play) -> None:
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


def test_port_status_keeps_the_description_true(play: Play) -> None:
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


def test_the_controller_s_own_port_desc_passes(play: Play) -> None:
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
