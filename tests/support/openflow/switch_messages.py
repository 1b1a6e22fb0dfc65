"""A message of every type that a switch sends in OpenFlow 1.3 and 1.5, with every nested list."""

from __future__ import annotations

import struct

from openflow_ext import wire

NICIRA = 0x2320
IN_PORT_1 = bytes.fromhex("8000000400000001")
TCP = bytes.fromhex("80000a020800") + bytes.fromhex("8000140106")
MASKED_METADATA = bytes.fromhex("80000510") + bytes(7) + b"\1" + bytes(7) + b"\xff"
OXS_DURATION = bytes.fromhex("80020008") + bytes(8)
OXS_PACKETS = bytes.fromhex("80020808") + bytes(8)
ETHERNET_PROPERTY = struct.pack("!HH4x6I", 0, 32, 1, 2, 3, 4, 5, 6)
UNKNOWN_PROPERTY = struct.pack("!HHII", 0x1234, 12, 1, 2) + bytes(4)
EXPERIMENTER_PROPERTY = struct.pack("!HHIIII", 0xFFFF, 20, 7, 1, 2, 3) + bytes(4)


def message(version: int, of_type: int, body: bytes = b"", xid: int = 7) -> bytes:
    """A message with a right header."""
    return struct.pack("!BBHI", version, of_type, 8 + len(body), xid) + body


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)


def match(*fields: bytes) -> bytes:
    inner = b"".join(fields)
    return padded(struct.pack("!HH", 1, 4 + len(inner)) + inner)


def stats(*fields: bytes) -> bytes:
    inner = b"".join(fields)
    return padded(struct.pack("!HH", 0, 4 + len(inner)) + inner)


def action(kind: int, body: bytes) -> bytes:
    return struct.pack("!HH", kind, 4 + len(body)) + body


def nicira(subtype: int, body: bytes) -> bytes:
    inner = struct.pack("!IH", NICIRA, subtype) + body
    return action(0xFFFF, inner + bytes(-(4 + len(inner)) % 8))


def instruction(kind: int, body: bytes) -> bytes:
    return struct.pack("!HH", kind, 4 + len(body)) + body


OUTPUT = action(0, struct.pack("!IH6x", 3, 0xFFFF))
SET_FIELD = action(25, bytes.fromhex("80001804") + bytes([10, 0, 0, 1]) + bytes(4))
GROUP = action(22, struct.pack("!I", 5))
PUSH_VLAN = action(17, struct.pack("!H2x", 0x8100))
CT = nicira(35, struct.pack("!HIHB3xH", 1, 0, 0, 255, 0) + OUTPUT)
CONTROLLER2 = nicira(37, bytes(6) + struct.pack("!HHH2x", 0, 6, 128) + struct.pack("!HHI", 3, 8, 0x01020304))
LEARN = nicira(
    16,
    struct.pack("!HHHQHBxHH", 10, 0, 5, 7, 0, 1, 0, 0)
    + struct.pack("!HIHIH", 48, 0x00000406, 0, 0x00000206, 0)
    + bytes(2),
)
NOTE = nicira(8, b"note12")
NAT = nicira(36, struct.pack("!2xHH", 1, 1) + bytes([10, 0, 0, 1]))
ACTIONS = (
    OUTPUT,
    SET_FIELD,
    GROUP,
    PUSH_VLAN,
    CT,
    CONTROLLER2,
    LEARN,
    NOTE,
    NAT,
    wire.encode_action(wire.SetWindow()),
)
INSTRUCTIONS = (
    instruction(1, struct.pack("!B3x", 3)),
    instruction(2, struct.pack("!4xQQ", 1, 2)),
    instruction(4, bytes(4) + b"".join(ACTIONS)),
    instruction(3, bytes(4) + OUTPUT),
)
BANDS = struct.pack("!HHII4x", 1, 16, 1000, 100) + struct.pack("!HHIIB3x", 2, 16, 1000, 100, 1)
PORT_13 = wire.encode_port(wire.OfpPort(1, "00:00:00:00:00:01", b"p1"), wire.OFP13)


def sized(head: bytes, body: bytes = b"", at: int = 0) -> bytes:
    """``head`` and ``body``, with the length of both as 16 bits at the offset ``at``."""
    data = head + body
    return data[:at] + len(data).to_bytes(2, "big") + data[at + 2 :]


def port_15() -> bytes:
    head = struct.pack("!IHxx6sxx16sII", 1, 0, bytes(6), b"p1", 0, 0)
    return sized(head, ETHERNET_PROPERTY + UNKNOWN_PROPERTY + EXPERIMENTER_PROPERTY, at=4)


def multipart(version: int, kind: int, body: bytes, flags: int = 0) -> bytes:
    return message(version, 19, struct.pack("!HH4x", kind, flags) + body)


def table_features(version: int) -> bytes:
    def listing(kind: int, data: bytes) -> bytes:
        return padded(struct.pack("!HH", kind, 4 + len(data)) + data)

    ids = struct.pack("!HHHH", 1, 4, 4, 4)
    oxms = bytes.fromhex("80000004") + bytes.fromhex("80000a02")
    listed = b"".join(listing(kind, ids) for kind in (0, 1, 4, 6)) + listing(2, b"\1\2\3")
    listed += b"".join(listing(kind, oxms) for kind in (8, 10, 12, 14))
    if version == wire.OFP15:
        listed += listing(18, bytes.fromhex("8000580400000000"))
    head = struct.pack("!HB5x32sQQII", 0, 0, b"table", 0, 0, 0, 1000)
    return sized(head, listed + EXPERIMENTER_PROPERTY)


def _flow_13(*instructions: bytes) -> bytes:
    head = struct.pack("!HBxIIHHHH4xQQQ", 0, 3, 1, 0, 100, 0, 0, 0, 7, 8, 9)
    return sized(head, match(IN_PORT_1, TCP) + b"".join(instructions))


def _multiparts_both(version: int) -> dict[int, bytes]:
    group_stats = sized(struct.pack("!HxxIIxxxxQQII", 0, 1, 1, 2, 3, 4, 5), bytes(32))
    meter_stats = sized(struct.pack("!IH6xIQQII", 1, 0, 1, 2, 3, 4, 5), bytes(32), at=4)
    return {
        0: struct.pack("!256s256s256s32s256s", b"Nicira", b"OVS", b"3.1", b"None", b"None"),
        3: bytes(48),
        6: group_stats * 2,
        8: bytes(40),
        9: meter_stats * 2,
        10: sized(struct.pack("!HHI", 0, 1, 1), BANDS) * 2,
        11: bytes(16 if version == wire.OFP13 else 24),
        12: table_features(version) * 2,
        0xFFFF: struct.pack("!II", 0x4F4E4600, 1) + bytes(8),
    }


def _multiparts_13() -> dict[int, bytes]:
    bucket = sized(struct.pack("!HHII4x", 0, 1, 2, 3), OUTPUT + SET_FIELD)
    return _multiparts_both(wire.OFP13) | {
        1: _flow_13(*INSTRUCTIONS) + _flow_13(),
        2: bytes(24),
        4: bytes(224),
        5: bytes(80),
        7: sized(struct.pack("!HBxI", 0, 1, 5), bucket * 2) * 2,
        13: PORT_13 * 2,
    }


def _group_15() -> tuple[bytes, bytes]:
    """A group's buckets and properties."""
    actions = OUTPUT + SET_FIELD
    weight = struct.pack("!HHHxx", 0, 8, 5)
    bucket = sized(struct.pack("!HHI", 0, len(actions), 1), actions + weight + EXPERIMENTER_PROPERTY)
    return bucket * 2, EXPERIMENTER_PROPERTY


def _multiparts_15() -> dict[int, bytes]:
    matched, counted = match(IN_PORT_1, TCP, MASKED_METADATA), stats(OXS_DURATION, OXS_PACKETS)
    buckets, properties = _group_15()
    flow = struct.pack("!H2xBxHHHHHQ", 0, 3, 100, 0, 0, 0, 0, 7)
    update = struct.pack("!HHBBHHH4xQ", 0, 0, 3, 0, 0, 0, 5, 7)
    uri = padded(struct.pack("!HH", 0, 4 + 15) + b"tcp:127.0.0.1:1")
    group = struct.pack("!HBxIH6x", 0, 1, 5, len(buckets))
    return _multiparts_both(wire.OFP15) | {
        1: sized(flow, matched + counted + b"".join(INSTRUCTIONS)) * 2,
        2: counted,
        4: sized(
            struct.pack("!HxxIII8Q", 0, 1, *range(10)),
            struct.pack("!HH4x8Q", 0, 72, *range(8)) + UNKNOWN_PROPERTY,
        )
        * 2,
        5: sized(struct.pack("!H6xII3QII", 0, 1, *range(6)), EXPERIMENTER_PROPERTY) * 2,
        7: sized(group, buckets + properties),
        13: port_15() * 2,
        14: sized(struct.pack("!HBxI", 0, 1, 0), struct.pack("!HHI", 2, 8, 1)) * 2,
        15: sized(
            struct.pack("!IIH6x", 1, 1, 0), struct.pack("!HHHxx", 1, 8, 5) + EXPERIMENTER_PROPERTY, at=8
        )
        * 2,
        16: sized(update, matched + b"".join(INSTRUCTIONS))
        + struct.pack("!HHI", 8, 4, 9)
        + struct.pack("!HH4x", 8, 5),
        17: sized(struct.pack("!HxxBBH", 0, 1, 0, 5), matched + counted) * 2,
        18: sized(struct.pack("!HHIBB6x", 0, 1, 2, 0, 1), uri),
        19: struct.pack("!H6x", 1) + struct.pack("!HHII", 0xFFFF, 16, 7, 1) + bytes(4),
    }


def _both(version: int) -> list[bytes]:
    features = struct.pack("!QIBB2xII", 0x2A, 256, 254, 0, 0x4F, 0)
    packet_in = struct.pack("!IHBBQ", 0xFFFFFFFF, 60, 0, 3, 7) + match(IN_PORT_1) + bytes(2) + bytes(60)
    return [
        message(version, 0),
        message(version, 0, struct.pack("!HHI", 1, 8, 0x50)),
        message(version, 1, struct.pack("!HH", 1, 10) + message(version, 14, bytes(56))),
        message(version, 1, struct.pack("!HHI", 0xFFFF, 2, wire.WEIR_EXPERIMENTER_ID) + bytes(8)),
        message(version, 2, b"ping"),
        message(version, 3, b"pong"),
        message(version, 4, struct.pack("!II", 0x4F4E4600, 9) + bytes(8)),
        message(version, 6, features),
        message(version, 8, struct.pack("!HH", 0, 128)),
        message(version, 10, packet_in),
        message(version, 21),
        message(version, 25, struct.pack("!I4xQ", 2, 1)),
    ]


def _messages_13() -> list[bytes]:
    queue_property = struct.pack("!HH4xH6x", 1, 16, 5) + struct.pack("!HH4xI4x", 0xFFFF, 16, 7)
    queue = sized(struct.pack("!IIH6x", 1, 1, 0), queue_property, at=8)
    return [
        *_both(wire.OFP13),
        message(4, 4, struct.pack("!IIIHH", 0x4F4E4600, 2300, 1, 1, 0) + EXPERIMENTER_PROPERTY),
        message(4, 11, struct.pack("!QHBBIIHHQQ", 7, 5, 0, 3, 1, 0, 0, 0, 8, 9) + match(IN_PORT_1, TCP)),
        message(4, 12, struct.pack("!B7x", 2) + PORT_13),
        message(4, 23, struct.pack("!I4x", 1) + queue * 2),
        message(4, 27, bytes(24)),
        *(multipart(4, kind, body) for kind, body in _multiparts_13().items()),
    ]


def _messages_15() -> list[bytes]:
    buckets, properties = _group_15()
    group_mod = struct.pack("!HBxIH2xI", 0, 1, 5, len(buckets), 0xFFFFFFFF) + buckets + properties
    uri = padded(struct.pack("!HH", 0, 4 + 15) + b"tcp:127.0.0.1:1")
    reasons = struct.pack("!HHI", 0, 8, 3) + struct.pack("!HHI", 1, 8, 3)
    return [
        *_both(wire.OFP15),
        message(
            6, 11, struct.pack("!BBHHHQ", 3, 0, 5, 0, 0, 7) + match(IN_PORT_1, TCP) + stats(OXS_DURATION)
        ),
        message(6, 12, struct.pack("!B7x", 2) + port_15()),
        message(6, 27, reasons + EXPERIMENTER_PROPERTY),
        message(6, 30, struct.pack("!IB3xQ", 3, 0, 1) + EXPERIMENTER_PROPERTY),
        message(
            6, 31, struct.pack("!B7x", 3) + sized(struct.pack("!HBxI", 0, 1, 0), struct.pack("!HHI", 2, 8, 1))
        ),
        message(6, 32, message(6, 15, group_mod)),
        message(6, 32, message(6, 29, struct.pack("!HHI", 0, 1, 1) + BANDS)),
        message(6, 33, struct.pack("!IHH", 1, 1, 0) + EXPERIMENTER_PROPERTY),
        message(6, 35, sized(struct.pack("!HHIBB6x", 0, 1, 2, 0, 1), uri)),
        *(multipart(6, kind, body) for kind, body in _multiparts_15().items()),
    ]


MESSAGES = {wire.OFP13: _messages_13(), wire.OFP15: _messages_15()}
"""The messages by OpenFlow version."""
