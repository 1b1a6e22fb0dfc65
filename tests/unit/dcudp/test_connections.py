"""Connections over loopback: messages, streams, keys, and how connections end."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import dcudp
from dcudp import Connection, ConnectionEnded, ConnectionLost, DcudpError, Node, Options
from dcudp.addresses import resolve
from dcudp.native import ErrorText, c_string, ffi, lib
from tests.support.dcudp.relay import CE, NOT_ECT, relay_to
from tests.support.waiting import DEADLINE_S, wait_until_async

pytestmark = pytest.mark.cargo
V4, V6 = "127.0.0.1:0", "[::1]:0"
MIB = 1 << 20


def run(test: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(test, DEADLINE_S)

    asyncio.run(bounded())


def key(folder: Path, name: str = "key") -> Path:
    path = folder / name
    assert lib().dcudp_make_key(c_string(path), ffi.NULL, 0) == 0
    return path


@asynccontextmanager
async def pair(
    address: str = V4, options: Options | None = None, through: Callable[[Node], str] | None = None
) -> AsyncIterator[tuple[Connection, Connection]]:
    """Both ends of a connection."""
    async with await dcudp.listen(address, options) as node:
        to = str(node.address) if through is None else through(node)
        client = await dcudp.connect(to, options)
        server = await node.accept()
        yield client, server
        client.abort()
        await client.wait_ended()


@pytest.mark.parametrize("address", [V4, V6])
@pytest.mark.parametrize("offload", [True, False])
def test_messages_arrive_whole_and_in_order_in_both_directions(address: str, offload: bool) -> None:
    async def test() -> None:
        async with pair(address, Options(offload=offload)) as (client, server):
            messages = [bytes([n]) * size for n, size in enumerate((0, 1, 100, 1_500, 70_000, MIB))]
            for sender, receiver in ((client, server), (server, client)):
                for message in messages:
                    await sender.send(message)
                assert [await receiver.receive() for _ in messages] == messages

    run(test())


@pytest.mark.parametrize("protected", [True, False])
def test_protection_is_used_if_both_ends_have_the_key(protected: bool, tmp_path: Path) -> None:
    async def test() -> None:
        seen = bytearray()
        options = Options(key_file=key(tmp_path)) if protected else Options()
        async with await dcudp.listen(V4, options) as node:
            with relay_to(tuple(node.address)) as relay:
                relay.keeps = lambda packet: seen.extend(packet) is None
                async with await dcudp.connect(relay.address, options) as client:
                    server = await node.accept()
                    await client.send(b"a secret message")
                    assert await server.receive() == b"a secret message"
        assert (b"a secret message" in seen) == (not protected)

    run(test())


def test_another_key_is_refused(tmp_path: Path) -> None:
    async def test() -> None:
        async with await dcudp.listen(V4, Options(key_file=key(tmp_path, "one"))) as node:
            for options in (Options(key_file=key(tmp_path, "other")), Options()):
                with pytest.raises(ConnectionLost, match="same key file at both ends"):
                    await dcudp.connect(str(node.address), options)
            assert node.statistics().packets_received > 0

    run(test())


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0"])
def test_beyond_loopback_a_key_is_needed(address: str) -> None:
    async def test() -> None:
        for begin in (dcudp.listen(address), dcudp.connect("192.0.2.1:9")):
            with pytest.raises(DcudpError, match="packets must be protected: give a key file"):
                await begin

    run(test())


def test_the_library_takes_the_interface_of_a_link_local_address() -> None:
    async def test() -> None:
        with pytest.raises(DcudpError, match=r"\[fe80::1%1\]:9 is not loopback"):
            await dcudp.connect("[fe80::1%lo]:9")

    run(test())


def test_a_key_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = key(tmp_path)
    path.chmod(0o644)

    async def test() -> None:
        with pytest.raises(DcudpError, match="chmod 600"):
            await dcudp.listen(V4, Options(key_file=path))

    run(test())


def test_streams_keep_their_order_beside_each_other() -> None:
    async def test() -> None:
        async with pair() as (client, server):
            streams = [client.open_stream() for _ in range(3)]
            parts = [bytes([n]) * 300_000 for n in range(3)]
            for stream, part in zip(streams, parts, strict=True):
                await stream.write(part)
            for stream in streams:
                await stream.close()
            accepted = [await server.accept_stream() for _ in streams]
            assert [await stream.read() for stream in accepted] == parts
            await accepted[0].write(b"answer")
            await accepted[0].close()
            assert await streams[0].read(3) == b"ans"
            assert await streams[0].read() == b"wer"
            with pytest.raises(DcudpError, match="closed"):
                await streams[0].write(b"more")
            own = server.open_stream()
            await own.write(b"from the server")
            assert await (await client.accept_stream()).read(99) == b"from the server"

    run(test())


def test_a_stream_larger_than_every_buffer_arrives() -> None:
    async def test() -> None:
        async with pair() as (client, server):
            stream, size = client.open_stream(), 40 * MIB

            async def send() -> None:
                await stream.write(bytes(size))
                await stream.close()

            sending = asyncio.create_task(send())
            received = await (await server.accept_stream()).read()
            await sending
            assert len(received) == size

    run(test())


def test_a_receiver_that_does_not_read_holds_the_sender_up() -> None:
    """The data in flight is bounded by the buffers of both ends, and arrives once the receiver reads."""

    async def test() -> None:
        async with pair(options=Options(mtu_bytes=1452)) as (client, server):
            sent = 0

            async def send() -> None:
                nonlocal sent
                for _ in range(100):
                    await client.send(bytes(MIB))
                    sent += 1

            sending = asyncio.create_task(send())
            await wait_until_async(lambda: client.statistics().peer_window_packets == 0, "the window is full")
            assert sent < 60
            for _ in range(100):
                assert len(await server.receive()) == MIB
            await sending

    run(test())


async def send_until_full(client: Connection) -> asyncio.Task[None]:
    """Send without end. Returns the sender once the receiver, which does not read, holds it up."""

    async def send() -> None:
        while True:
            await client.send(bytes(MIB))

    sending = asyncio.create_task(send())
    await wait_until_async(lambda: client.statistics().peer_window_packets == 0, "the window is full")
    return sending


@pytest.mark.parametrize("aborts", [True, False])
def test_a_connection_with_unread_data_ends_and_holds_up_no_other(aborts: bool) -> None:
    async def test() -> None:
        options = Options(mtu_bytes=1452)
        async with await dcudp.listen(V4, options) as node:
            client = await dcudp.connect(str(node.address), options)
            server = await node.accept()
            sending = await send_until_full(client)
            if aborts:
                server.abort()
                assert isinstance(await server.wait_ended(), ConnectionEnded)
            else:
                await server.close()
            with pytest.raises(ConnectionEnded):
                await sending
            assert len(await server.receive()) == MIB
            async with await dcudp.connect(str(node.address), options) as other:
                await other.send(b"heard")
                assert await (await node.accept()).receive() == b"heard"

    run(test())


def test_data_that_the_application_does_not_take_holds_nothing_up() -> None:
    async def test() -> None:
        async with pair(options=Options(mtu_bytes=1452)) as (client, server):
            sending = await send_until_full(client)
            server.drop_data()
            sent = client.statistics().data_sent
            await wait_until_async(lambda: client.statistics().data_sent > 2 * sent, "the sender goes on")
            sending.cancel()

    run(test())


def test_many_connections_share_a_port() -> None:
    async def test() -> None:
        async with await dcudp.listen(V4) as node, Node(resolve(V4), Options(), listens=False) as clients:
            connections = [await clients.connect(node.address) for _ in range(50)]
            for number, connection in enumerate(connections):
                await connection.send(str(number).encode())
            servers = [await node.accept() for _ in connections]
            assert {await server.receive() for server in servers} == {str(n).encode() for n in range(50)}
            for connection in connections:
                await connection.close()
            for server in servers:
                assert str(await server.wait_ended()) == "the connection is closed"

    run(test())


def test_close_lets_all_data_arrive() -> None:
    async def test() -> None:
        async with pair() as (client, server):
            for _ in range(8):
                await client.send(bytes(MIB))
            closing = asyncio.create_task(client.close())
            received = [await server.receive() for _ in range(8)]
            await closing
            assert sum(map(len, received)) == 8 * MIB
            with pytest.raises(ConnectionEnded):
                await server.receive()
            with pytest.raises(ConnectionEnded):
                await client.send(b"late")

    run(test())


def test_a_close_that_the_peers_close_cuts_off_names_the_lost_bytes() -> None:
    async def test() -> None:
        async with pair(options=Options(mtu_bytes=1452)) as (client, server):
            (await send_until_full(client)).cancel()
            lost, _ = await asyncio.gather(client.close(), server.close(), return_exceptions=True)
            assert isinstance(lost, ConnectionLost)
            assert str(lost).startswith("the peer closed the connection: ")
            assert str(lost).endswith(" bytes were not confirmed")

    run(test())


def test_abort_ends_both_ends() -> None:
    async def test() -> None:
        async with pair() as (client, server):
            client.abort()
            assert "the peer ended the connection" in str(await server.wait_ended())

    run(test())


def test_a_peer_that_vanishes_is_noticed_at_both_ends() -> None:
    async def test() -> None:
        options = Options(dead_after_s=1.0)
        async with await dcudp.listen(V4, options) as node:
            with relay_to(tuple(node.address)) as relay:
                client = await dcudp.connect(relay.address, options)
                server = await node.accept()
                relay.keeps = lambda _: False
                for connection in (client, server):
                    ended = await connection.wait_ended()
                    assert isinstance(ended, ConnectionLost)
                    assert "the peer vanished" in str(ended)

    run(test())


def test_nobody_there_is_one_clear_error() -> None:
    async def test() -> None:
        with pytest.raises(ConnectionLost, match="no answer: is the peer listening there"):
            await dcudp.connect("127.0.0.1:9", Options(handshake_timeout_s=0.3))

    run(test())


def test_a_refused_packet_explains_only_the_timeout_of_its_connection() -> None:
    async def test() -> None:
        options = Options(handshake_timeout_s=0.3)
        async with Node(resolve(V4), options, listens=False) as clients:
            # The kernel sends no packet to port 0.
            reasons = {"127.0.0.1:0": "cannot send some packets", "127.0.0.1:9": "is the peer listening"}
            for peer, reason in reasons.items():
                with pytest.raises(ConnectionLost, match=f"no answer.*{reason}"):
                    await clients.connect(resolve(peer))

    run(test())


def exchange_through(
    arrange: Callable[[Any], None],
    check: Callable[[Connection, Connection], Awaitable[None] | None],
    mib: int = 2,
) -> None:
    """Send some MiB through a relay that `arrange` sets up."""

    async def test() -> None:
        async with await dcudp.listen(V4) as node:
            with relay_to(tuple(node.address)) as relay:
                arrange(relay)
                client = await dcudp.connect(relay.address, Options(max_rate_bps=200_000_000))
                server = await node.accept()
                for _ in range(mib):
                    await client.send(bytes(MIB))
                for _ in range(mib):
                    assert len(await server.receive()) == MIB
                check(client, server)
                client.abort()
                await client.wait_ended()

    run(test())


def test_marks_are_received_and_lead_to_the_congestion_mode() -> None:
    def check(client: Connection, server: Connection) -> None:
        assert server.statistics().ce_received > 0
        assert client.statistics().congestion_entries > 0
        assert not server.statistics().ecn_bleached

    exchange_through(lambda relay: setattr(relay, "mark", lambda ecn: CE if ecn else ecn), check)


def test_a_path_that_bleaches_ecn_is_noticed_and_carries_data() -> None:
    def check(client: Connection, server: Connection) -> None:
        assert server.statistics().ecn_bleached
        assert server.statistics().ce_received == 0

    exchange_through(lambda relay: setattr(relay, "mark", lambda _: NOT_ECT), check)


def test_losses_are_repaired() -> None:
    def lose(relay: Any) -> None:
        count = 0

        def keeps(_: bytes) -> bool:
            nonlocal count
            count += 1
            return count % 11 != 0

        relay.keeps = keeps

    exchange_through(
        lose, lambda client, _: None if client.statistics().retransmitted else pytest.fail("no loss")
    )


def test_a_path_that_loses_large_packets_gets_small_ones() -> None:
    def check(client: Connection, _: Connection) -> None:
        assert client.statistics().mtu_bytes == 1200

    exchange_through(lambda relay: setattr(relay, "keeps", lambda packet: len(packet) <= 1300), check)


def test_a_node_that_is_closed_ends_its_connections() -> None:
    async def test() -> None:
        node = await dcudp.listen(V4)
        client = await dcudp.connect(str(node.address))
        server = await node.accept()
        node.close()
        node.close()
        assert "the node was closed" in str(await server.wait_ended())
        assert "the peer ended the connection" in str(await client.wait_ended())
        with pytest.raises(DcudpError, match="the node is closed"):
            await node.accept()

    run(test())


def test_a_node_that_is_closed_informs_every_peer() -> None:
    """There are more than one turn of its thread sends."""

    async def test() -> None:
        count = 1_500
        async with await dcudp.listen(V4) as node, Node(resolve(V4), Options(), listens=False) as clients:
            for _ in range(count):
                await clients.connect(node.address)
            servers = [await node.accept() for _ in range(count)]
            clients.close()
            ends = asyncio.gather(*(server.wait_ended() for server in servers))
            assert {str(end) for end in await asyncio.wait_for(ends, 10)} == {"the peer ended the connection"}

    run(test())


def test_a_node_ends_with_a_connection_that_has_ended_already() -> None:
    """The peer may end a connection before `connect` returns it."""

    async def test() -> None:
        async with await dcudp.listen(V4) as node:
            clients = Node(resolve(V4), Options(), listens=False)
            client = await clients.connect(node.address)
            (await node.accept()).abort()
            await client.wait_ended()
            clients.close_with(client)
            with pytest.raises(DcudpError, match="the node is closed"):
                clients.statistics()

    run(test())


def test_a_node_ends_with_its_event_loop() -> None:
    """Otherwise its thread, and the connections at the peers, would stay until the end of the process."""

    async def leave() -> str:
        return str((await dcudp.listen(V4)).address)

    async def listen_again(address: str) -> None:
        (await dcudp.listen(address)).close()

    address = asyncio.run(leave())
    gc.collect()
    asyncio.run(listen_again(address))


def test_a_load_without_end_does_not_end_the_node() -> None:
    async def test() -> None:
        async with pair(options=Options(counts_load=True)) as (client, _):
            error = ErrorText()
            lib().dcudp_send_load(client._node.pointer, client.number, 2**64 - 1, error.buffer, error.bytes)
            await wait_until_async(lambda: client.statistics().acknowledged > 100, "the load arrives")

    run(test())


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:Using fork:DeprecationWarning")  # of eventlet, if it is imported
def test_a_child_process_leaves_the_node_to_its_parent() -> None:
    """A fork copies the memory of a node and not its thread, for which a child would wait for ever."""

    async def test() -> None:
        async with pair() as (client, server):
            node = client._node.pointer
            child = os.fork()
            if not child:
                signal.alarm(10)
                error = ErrorText()
                refused = lib().dcudp_send_load(node, client.number, 1, error.buffer, error.bytes)
                lib().dcudp_close(node)
                os._exit(0 if refused and "open another one after the fork" in str(error) else 1)
            assert os.waitpid(child, 0)[1] == 0
            await client.send(b"of the parent")
            assert await server.receive() == b"of the parent"

    run(test())


def test_an_address_in_use_is_one_clear_error() -> None:
    async def test() -> None:
        async with await dcudp.listen(V4) as node:
            with pytest.raises(
                DcudpError, match=r"cannot listen on 127\.0\.0\.1:\d+: address already in use"
            ):
                await dcudp.listen(str(node.address))

    run(test())


def test_a_message_that_is_too_large_is_refused() -> None:
    async def test() -> None:
        async with pair() as (client, _):
            with pytest.raises(DcudpError, match="too large"):
                await client.send(bytes(32 * MIB))

    run(test())


def test_statistics_count_packets_and_system_calls() -> None:
    async def test() -> None:
        async with await dcudp.listen(V4) as node, Node(resolve(V4), Options(), listens=False) as clients:
            connection = await clients.connect(node.address)
            await connection.send(bytes(3 * MIB))
            await (await node.accept()).receive()
            statistics, counters = clients.statistics(), connection.statistics()
            assert counters.data_sent >= 3 * MIB // counters.mtu_bytes
            assert statistics.packets_sent >= counters.data_sent > statistics.send_calls
            assert statistics.bytes_sent > 3 * MIB
            assert statistics.paced > 0
            assert statistics.late_mean_us <= statistics.late_p99_us <= statistics.late_max_us
            assert statistics.cpu_us > 0

    run(test())
