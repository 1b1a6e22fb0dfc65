"""The proxy between a scripted Open vSwitch and a scripted controller, over real sockets."""

from __future__ import annotations

import asyncio
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from openflow_ext import wire
from openflow_ext.switch.errors import SwitchError
from openflow_ext.switch.openflow import messages as of
from openflow_ext.switch.openflow import proxy as proxy_module
from openflow_ext.switch.openflow.proxy import Controller, ProxiedSession, Proxy
from tests.support.agent.proxy_bench import Bench, End, Play, echo
from tests.support.openflow.flow_mods import ext, flow_mod, ofproto, output, parsed
from tests.support.waiting import DEADLINE_S

_ID = wire.WEIR_EXPERIMENTER_ID.to_bytes(4, "big")
READ_BYTES = 1 << 18
"""The bytes that asyncio reads at a time."""


def test_messages_pass_unchanged_in_both_directions(play: Play) -> None:
    async def script(bench: Bench) -> None:
        switch, controller = await bench.join()
        many = [echo(xid, xid % 50) for xid in range(2000)]
        many[7] = flow_mod(actions=[output(1)], xid=7)
        many[9] = of.HEADER.pack(4, 4, 16, 9) + bytes.fromhex("0000232000000001")
        for source, sink in ((switch, controller), (controller, switch)):
            source.send(*many)
            for expected in many:
                assert await sink.message() == expected
        assert stat.S_IMODE(bench.proxy.path.stat().st_mode) == 0o600

    play(script)


@pytest.mark.parametrize("side", [0, 1])
def test_a_session_ends_when_one_end_closes(play: Play, side: int) -> None:
    async def script(bench: Bench) -> None:
        ends = await bench.join()
        ends[side].writer.close()
        assert await ends[1 - side].ends()
        assert not bench.proxy.sessions

    play(script)


def test_open_vswitch_is_disconnected_if_the_controller_is_down(play: Play) -> None:
    async def script(bench: Bench) -> None:
        bench.server.close()
        await bench.server.wait_closed()
        assert await (await bench.dial()).ends()
        assert not bench.proxy.sessions

    play(script)


@pytest.mark.parametrize("side", [0, 1])
def test_bytes_that_are_not_openflow_end_only_their_session(play: Play, side: int) -> None:
    async def script(bench: Bench) -> None:
        other = await bench.join()
        ends = await bench.join()
        ends[side].send(echo(3), b"\xff" * 20)
        assert await ends[1 - side].message() == echo(3)
        assert await ends[1 - side].ends()
        other[0].send(echo(4))
        assert await other[1].message() == echo(4)

    play(script)


def test_port_config_is_answered_and_does_not_reach_open_vswitch(play: Play) -> None:
    async def script(bench: Bench) -> None:
        switch, controller = await bench.join()
        config = wire.PortConfig(1, wire.PortConfigFlags.ALARM, k_pkts=20, rtt_us=100)
        bad = of.HEADER.pack(4, 4, 12, 3) + wire.WEIR_EXPERIMENTER_ID.to_bytes(4, "big")
        controller.send(wire.encode_message(config, xid=2), bad, echo(4))
        reply = await controller.message()
        assert of.HEADER.unpack_from(reply)[3] == 2
        assert wire.decode_message(reply).k_pkts == 20  # type: ignore[union-attr]
        assert wire.decode_message(await controller.message()).code == wire.ErrorCode.BAD_MESSAGE  # type: ignore[union-attr]
        assert await switch.message() == echo(4)
        controller.send(wire.encode_message(wire.PortCountersRequest(), xid=5), echo(6))
        assert wire.decode_message(await controller.message()).records[0].n_i == 11  # type: ignore[union-attr]
        assert await switch.message() == echo(6)

    play(script)


def test_a_flow_mod_acts_in_both_parts(play: Play) -> None:
    async def script(bench: Bench) -> None:
        switch, controller = await bench.join()
        controller.send(flow_mod(actions=[ext(wire.SetWindow()), output(3)], xid=77, priority=5))
        assert await switch.message() == flow_mod(actions=[output(3)], xid=77, priority=5)
        assert len(bench.plane.held) == 1

    play(script)


def test_a_flow_mod_refused_by_the_extension_does_not_reach_open_vswitch(play: Play) -> None:
    async def script(bench: Bench) -> None:
        switch, controller = await bench.join()
        bad = flow_mod({}, [ext(wire.SetWindow()), output(3)], xid=77)
        controller.send(bad, echo(78))
        error = parsed(await controller.message())
        assert (error.type, error.xid) == (ofproto.OFPET_BAD_MATCH, 77)
        assert bytes(error.data) == bad[:64]
        assert await switch.message() == echo(78)
        assert not bench.plane.held

    play(script)


def test_a_flow_mod_that_open_vswitch_refuses_is_undone(play: Play) -> None:
    async def script(bench: Bench) -> None:
        switch, controller = await bench.join()
        whole = flow_mod(actions=[ext(wire.SetWindow()), output(3)], xid=77)
        controller.send(whole)
        sent = await switch.message()
        assert len(bench.plane.held) == 1
        switch.send(of.error(sent, ofproto.OFPET_BAD_ACTION, ofproto.OFPBAC_BAD_OUT_PORT))
        error = parsed(await controller.message())
        assert (error.type, error.code) == (ofproto.OFPET_BAD_ACTION, ofproto.OFPBAC_BAD_OUT_PORT)
        assert (error.xid, bytes(error.data)) == (77, whole[:64])
        assert not bench.plane.held
        foreign = of.error(echo(5), 1, 1)
        switch.send(foreign)
        assert await controller.message() == foreign

    play(script)


def test_malformed_flow_mods_are_left_to_open_vswitch(play: Play) -> None:
    async def script(bench: Bench) -> None:
        switch, controller = await bench.join()
        whole = flow_mod(actions=[ext(wire.SetWindow())], xid=3)
        lying = whole[:-14] + b"\xff\xf0" + whole[-12:]
        short = of.HEADER.pack(4, of.OFPT_FLOW_MOD, 20, 4) + _ID + bytes(8)
        controller.send(lying, short)
        assert await switch.message() == lying
        assert await switch.message() == short
        assert not bench.plane.held

    play(script)


def test_openflow_1_0_passes_unchanged(play: Play) -> None:
    async def script(bench: Bench) -> None:
        switch, controller = await bench.join()
        vendor = of.HEADER.pack(1, 4, 16, 3) + _ID + bytes(4)
        controller.send(vendor)
        assert await switch.message() == vendor

    play(script)


def waiting_bytes(proxied: ProxiedSession) -> int:
    """The bytes of messages that the agent buffers."""
    ends = (proxied.switch_end, proxied._controller_end)
    held = sum(len(piece) for end in ends for _, piece in end._held)
    return held + sum(end.transport.get_write_buffer_size() for end in ends if end.transport)


async def sent_until_held_back(end: End, messages: list[bytes]) -> int:
    """Send ``messages`` until the other side stops reading. Returns the number sent."""
    for sent, message in enumerate(messages):
        end.send(message)
        try:
            async with asyncio.timeout(0.2):
                await end.writer.drain()
        except TimeoutError:
            return sent + 1
    raise AssertionError("all were taken")


@pytest.mark.parametrize("side", [0, 1])
def test_a_slow_reader_pauses_the_other_end(play: Play, side: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_module, "BUFFER_BYTES", 1 << 16)

    async def script(bench: Bench) -> None:
        ends = await bench.join()
        source, sink = ends[side], ends[1 - side]
        messages = [echo(xid, 30_000 + xid) for xid in range(2000)]
        sent = await sent_until_held_back(source, messages)
        (proxied,) = bench.proxy.sessions
        assert waiting_bytes(proxied) <= proxy_module.BUFFER_BYTES + READ_BYTES
        assert proxied.notify(echo(1)) is (side == 1)
        for message in messages[:sent]:
            assert await sink.message() == message
        async with asyncio.timeout(DEADLINE_S):
            await source.writer.drain()
        assert waiting_bytes(proxied) == 0

    play(script)


def test_a_controller_that_reads_no_answers_is_not_read(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_module, "BUFFER_BYTES", 1 << 16)
    config = wire.PortConfig(1, wire.PortConfigFlags.READ)

    async def script(bench: Bench) -> None:
        bench.server.sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        _, controller = await bench.join()
        requests = [wire.encode_message(config, xid=xid) * 1000 for xid in range(500)]
        sent = await sent_until_held_back(controller, requests)
        (proxied,) = bench.proxy.sessions
        assert waiting_bytes(proxied) <= proxy_module.BUFFER_BYTES + 2 * READ_BYTES
        for xid in range(sent):
            for _ in range(1000):
                assert of.HEADER.unpack_from(await controller.message())[3] == xid

    play(script)


@pytest.mark.parametrize(
    ("target", "host", "port", "path"),
    [
        ("tcp:127.0.0.1:6653", "127.0.0.1", 6653, ""),
        ("tcp:controller", "controller", 6653, ""),
        ("tcp:[::1]:6633", "::1", 6633, ""),
        ("unix:/run/c.sock", "", 0, "/run/c.sock"),
    ],
)
def test_controller_targets_are_parsed(target: str, host: str, port: int, path: str) -> None:
    found = Controller.parse(target)
    assert (found.host, found.path) == (host, path)
    assert path or found.port == port


@pytest.mark.parametrize("target", ["", "tcp:", "pssl:6653", "127.0.0.1:6653", "tcp:h:0", "tcp:h:99999"])
def test_invalid_controller_targets_are_refused(target: str) -> None:
    with pytest.raises(SwitchError, match="expected tcp:HOST"):
        Controller.parse(target)


def test_a_socket_that_cannot_be_created_is_an_error(tmp_path: Path) -> None:
    def new_session(name: str) -> Any:
        raise AssertionError

    controller = Controller.parse("tcp:127.0.0.1")
    with pytest.raises(SwitchError, match="too many for a Unix socket"):
        asyncio.run(Proxy(tmp_path / ("x" * 120), controller, new_session).listen())
    with pytest.raises(SwitchError, match="cannot listen on"):
        asyncio.run(Proxy(tmp_path / "missing" / "s", controller, new_session).listen())
