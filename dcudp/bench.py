"""Measurements between two ends: what `weir dcudp bench` does."""

from __future__ import annotations

from dataclasses import dataclass

from dcudp import listen
from dcudp.addresses import resolve
from dcudp.connection import Connection
from dcudp.events import Load
from dcudp.node import Node, Options
from dcudp.receiving import Report, serve, until_signal
from dcudp.statistics import ConnectionStatistics, NodeStatistics

LOOPBACK = "127.0.0.1:0"


@dataclass(frozen=True, slots=True)
class Measured:
    """A measurement. CPU times are of the threads that serve the sockets."""

    bytes: int
    seconds: float
    rate_bps: int
    sender_cpu_seconds: float
    receiver_cpu_seconds: float
    connection: ConnectionStatistics
    node: NodeStatistics

    @classmethod
    def of(cls, load: Load, connection: ConnectionStatistics, node: NodeStatistics) -> Measured:
        """From what the receiver counted and the sender's statistics."""
        return cls(
            bytes=load.bytes,
            seconds=load.elapsed_us / 1e6,
            rate_bps=round(load.rate_bps),
            sender_cpu_seconds=node.cpu_us / 1e6,
            receiver_cpu_seconds=load.cpu_us / 1e6,
            connection=connection,
            node=node,
        )

    def text(self) -> str:
        """For a person."""
        packets, cpu = self.connection.data_sent, (self.sender_cpu_seconds, self.receiver_cpu_seconds)
        mbps = self.rate_bps / 1e6
        return "\n".join(
            (
                f"throughput     {mbps:.1f} Mbit/s ({self.bytes} bytes in {self.seconds:.2f} s)",
                f"CPU seconds    sender {cpu[0]:.2f}, receiver {cpu[1]:.2f}",
                f"packets        {packets}, of {self.connection.mtu_bytes} bytes at most; "
                f"{self.connection.retransmitted} sent again",
                f"system calls   {self.node.send_calls} to send, {self.node.receive_calls} to receive",
                f"RTT            {self.connection.rtt_us} us, at least {self.connection.rtt_idle_us} us",
                f"pacing         timers ran {self.node.late_mean_us} us late in the mean, "
                f"99% within {self.node.late_p99_us} us, at most {self.node.late_max_us} us",
            )
        )


async def measure(peer: str | None, seconds: float, options: Options) -> Measured:
    """Send for some seconds; without a peer, to a node of this process. Raises DcudpError."""
    if peer is not None:
        return await _measure(peer, seconds, options)
    async with await listen(LOOPBACK, options) as node:
        return await _measure(str(node.address), seconds, options)


async def _measure(peer: str, seconds: float, options: Options) -> Measured:
    to = resolve(peer)
    async with (
        Node(to.local_bind(), options, listens=False, peer=to) as node,
        await node.connect(to) as connection,
    ):
        load = await connection.send_load(seconds)
        return Measured.of(load, connection.statistics(), node.statistics())


async def serve_bench(address: str, options: Options, report: Report) -> None:
    """Count the loads of peers until a signal."""

    async def attend(connection: Connection) -> None:
        connection.drop_data()
        await connection.wait_ended()

    async with until_signal() as stop, await listen(address, options) as node:
        report("listening", address=str(node.address))
        await serve(node, stop, attend)
