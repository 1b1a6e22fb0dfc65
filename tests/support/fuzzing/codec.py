"""The extension's codec on mangled bytes and on values that cannot be sent, in both versions.

It may raise nothing but WireError, and what it accepts must survive a round trip.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address
from typing import Any, get_args

from openflow_ext import wire

HOSTS = (IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2"), IPv6Address("fd00::1"), IPv6Address("fd00::2"))
PORT = wire.OfpPort(1, "00:00:00:00:00:01", b"s1-eth1")
PORT_15 = dataclasses.replace(PORT, properties=(bytes.fromhex("ffff000c0000000100000002"),))
CROSSING = {"port_buf_pkts": 31, "port_buf_bytes": 46934, "port_rate_bps": 10**8, "cookie": 7, "n_i": 4}
RECORD = wire.FlowRecord(wire.FlowKind.OPENED, *HOSTS[:2], 40000, 80, 2, mss_src=1460)
CLOSED = RECORD._replace(kind=wire.FlowKind.CLOSED, src=HOSTS[2], dst=HOSTS[3], reason=wire.CloseReason.RST)
MESSAGES: list[wire.Message] = [
    wire.BufAlarm(PORT, **CROSSING),
    wire.BufNormal(PORT, **CROSSING),
    wire.PortConfig(1, wire.PortConfigFlags.ALARM, 20, 100, mark_mode=wire.MarkMode.STEP),
    wire.PortConfigReply(1, wire.PortConfigFlags.WINDOW, 20, 100, 10**9),
    wire.FlowReport((RECORD, CLOSED), lost=3),
    wire.FlowReportConfig(wire.FlowKinds.OPENED | wire.FlowKinds.CLOSED, 10, 20, 30),
    wire.Arm(1, (wire.ArmEntry(*HOSTS[:2], 80, 40000, 1536), wire.ArmEntry(*HOSTS[2:], 80, 40001, 1024))),
    wire.Reflex(1, 2, True, 4, 7, 1_700_000_000_000_000_000),
    wire.PortCountersRequest(),
    wire.PortCountersReply((wire.PortCountersRecord(1, 4), wire.PortCountersRecord(2, 5)), more=True),
    wire.ExperimenterError(wire.ErrorCode.BAD_MESSAGE, bytes(20)),
]
PARTS: list[Any] = [
    *(wire.ModWindow(1536), wire.IncrementNi(), wire.DecrementNi(3), wire.SetWindow(2048), wire.Observe()),
    *(wire.TcpWindow(5), wire.TcpWindow(4, 0xFF)),
]
ODD = (-1, 0, 1, 2, 0xFF, 0x100, 0xFFFF, 0x10000, 0xFFFFFFFF, 1 << 32, (1 << 64) - 1, 1 << 64)

Codec = tuple[Callable[[Any], bytes], Callable[[bytes], Any]]


def codec(value: Any, version: int, framing: wire.Framing) -> Codec:
    """The functions that encode and decode a value of the type of ``value``."""
    if isinstance(value, wire.OfpPort):
        return lambda port: wire.encode_port(port, version), lambda data: wire.decode_port(data, version)
    if isinstance(value, wire.TcpWindow):
        return wire.encode_field, wire.decode_field
    if isinstance(value, wire.ACTIONS):
        return wire.encode_action, wire.decode_action
    return lambda message: wire.encode_message(message, version, 7, framing=framing), wire.decode_message


def with_odd_part(rng: random.Random, value: Any) -> Any:
    """A copy of ``value`` with one part replaced by another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice((*ODD, rng.getrandbits(64)))
    if value is None:
        return rng.choice((None, 0xFF, -1))
    if isinstance(value, bytes):
        return rng.randbytes(rng.choice((0, 1, 3, 4, 12, 16, 17, 40)))
    if isinstance(value, str):
        return rng.choice(("", "00:00:00:00:00", "00:00:00:00:00:0g", "ff:ff:ff:ff:ff:ff", "é"))
    if isinstance(value, IPv4Address | IPv6Address):
        return rng.choice((*HOSTS, IPv4Address(rng.getrandbits(32)), IPv6Address(rng.getrandbits(128))))
    if isinstance(value, wire.FlowRecord):
        name = rng.choice(value._fields)
        return value._replace(**{name: with_odd_part(rng, getattr(value, name))})
    if isinstance(value, tuple):
        place = rng.randrange(len(value)) if value else 0
        odd = tuple(with_odd_part(rng, one) for one in value[place : place + 1])
        return value[:place] + odd + value[place + 1 :]
    names = [field.name for field in dataclasses.fields(value)]
    odd = {name: with_odd_part(rng, getattr(value, name)) for name in rng.sample(names, min(1, len(names)))}
    return dataclasses.replace(value, **odd)


def mangled(rng: random.Random, data: bytes) -> bytes:
    """``data`` with some bytes changed, cut or added. In most cases its header states the right length."""
    changed = bytearray(data)
    for _ in range(rng.choice((0, 1, 1, 2, 5))):
        changed[rng.randrange(len(changed))] = rng.choice((0, 1, 4, 6, 8, 0xFF, rng.getrandbits(8)))
    if rng.random() < 0.3:
        del changed[rng.randrange(len(changed)) :]
    if rng.random() < 0.1:
        changed += rng.randbytes(rng.randrange(120))
    if rng.random() < 0.8 and len(changed) > 3:
        changed[2:4] = len(changed).to_bytes(2, "big")
    return bytes(changed)


def one_input(rng: random.Random) -> bool:
    """Encode an odd value or decode mangled bytes. Returns whether the codec accepts it."""
    version, framing = rng.choice((wire.OFP13, wire.OFP15)), rng.choice(get_args(wire.Framing))
    port = PORT if version == wire.OFP13 else rng.choice((PORT, PORT_15))
    value = rng.choice((*MESSAGES, *PARTS, port))
    if isinstance(value, wire.BufAlarm | wire.BufNormal):
        value = dataclasses.replace(value, port=port)
    encode, decode = codec(value, version, framing)
    try:
        if rng.random() < 0.5:
            given = with_odd_part(rng, value)
            data = encode(given)
        else:
            data = mangled(rng, encode(value))
            given = decode(data)
    except wire.WireError:
        return False
    if isinstance(value, wire.Message):
        version = data[0]  # the version byte may be mangled as well
    encode, decode = codec(given, version, framing)
    if decode(encode(given)) != given:
        raise AssertionError(f"{data.hex()} changes in a round trip")
    return True


class CodecTarget:
    """Inputs of the codec. It has no state."""

    def begin(self) -> None: ...

    def feed(self, rng: random.Random) -> bool:
        return one_input(rng)

    def close(self) -> None: ...
