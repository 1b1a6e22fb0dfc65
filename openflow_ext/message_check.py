"""Checks the lengths in a switch's message before a parser of Ryu or os-ken sees it.

The parsers of both engines believe the lengths inside a message. A length of 0 makes some of their loops run
for ever, and a length beyond the end of its container makes others keep copies of the rest of the message.
``check(message)`` walks over every nested length of every message that a switch may send in OpenFlow 1.3
and 1.5. It raises WireError if a length is below the size of its header or beyond the end of its container.
It also refuses a message type that only a controller sends, and a list that is longer than any switch needs.

It does not check values: a wrong value makes the engine's parser raise an exception, which ``registry``
catches. Of other OpenFlow versions it lets pass only HELLO, ERROR and ECHO, which announce no other length.

A *part* is a function that checks a part of a message from one offset up to another, and returns where the
part ends. The functions below build parts from parts, in the order of the OpenFlow specification.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from openflow_ext import wire

Part = Callable[[bytes, int, int], int]

OFPT_HELLO = 0
_OFPT_ECHO_REQUEST, _OFPT_ECHO_REPLY = 2, 3
_OFPT_GROUP_MOD, _OFPT_METER_MOD = 15, 29
_HEADER = 8
_MOST_ITEMS = 4096
"""More records, entries or actions than 64 KB hold of any kind that a switch sends in practice."""
_MOST_PROPERTIES = 128
"""Ryu keeps a copy of the rest of the message for each property of an unknown type."""
_MOST_NESTED = 8
"""Actions inside actions (Nicira's CT). The parsers recurse."""
_NICIRA = (0x2320).to_bytes(4, "big")


def _u16(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 2], "big")


def _padded(size: int) -> int:
    return (size + 7) & ~7


# -- parts of any message ------------------------------------------------------------------------


def _rest(_data: bytes, _at: int, end: int) -> int:
    """Bytes without an inner length."""
    return end


def _fixed(name: str, size: int) -> Part:
    """A structure of ``size`` bytes."""

    def check(_data: bytes, at: int, end: int) -> int:
        if end - at < size:
            raise wire.Truncated(name, f"{end - at} of {size} bytes are there")
        return at + size

    return check


def _sequence(*parts: Part) -> Part:
    def check(data: bytes, at: int, end: int) -> int:
        for part in parts:
            at = part(data, at, end)
        return at

    return check


def _records(name: str, size: int) -> Part:
    """Structures of ``size`` bytes each, up to the end."""

    def check(_data: bytes, at: int, end: int) -> int:
        if (end - at) % size:
            raise wire.BadLength(name, f"{end - at} bytes are not a multiple of {size}")
        return end

    return check


def _items(
    name: str,
    head: int,
    part: Part = _rest,
    *,
    length_at: int = 2,
    pads: bool = False,
    most: int = _MOST_ITEMS,
) -> Part:
    """Structures that announce their lengths at the offset ``length_at``, up to the end.

    ``head`` is the size of the part before the ``part`` of variable length. With ``pads`` a structure is
    followed by padding that its length leaves out.
    """

    def check(data: bytes, at: int, end: int) -> int:
        count = 0
        while at < end:
            if end - at < head:
                raise wire.Truncated(name, f"{end - at} of {head} bytes are there")
            length = _u16(data, at + length_at)
            if not head <= length <= end - at:
                raise wire.BadLength(f"{name}.length", f"is {length}, not {head} to {end - at}")
            count += 1
            if count > most:
                raise wire.BadLength(name, f"comes more than {most} times in one list")
            part(data, at + head, at + length)
            at += _padded(length) if pads else length
        return end

    return check


def _chosen(name: str, parts: Mapping[int, Part], *, at: int, other: Part | None = None) -> Part:
    """The part for the 16-bit type at the offset ``at`` from the start. ``other``: for all other types."""

    def check(data: bytes, start: int, end: int) -> int:
        kind = _u16(data, start + at)
        part = parts.get(kind, other)
        if part is None:
            raise wire.UnknownType(name, f"a switch does not send {kind}")
        return part(data, start, end)

    return check


def _tail(head: int, part: Part) -> Part:
    """``part`` for an item whose header of ``head`` bytes has been passed; ``part`` starts at the header."""

    def check(data: bytes, at: int, end: int) -> int:
        return part(data, at - head, end)

    return check


# -- matches, statistics, properties, actions, instructions --------------------------------------


def _tlvs(data: bytes, at: int, end: int) -> int:
    """OXM or OXS fields. The length is one byte and counts the bytes after a header of 4."""
    while at < end:
        if end - at < 4:
            raise wire.Truncated("oxm_header", f"{end - at} of 4 bytes are there")
        size = data[at + 3]
        if not 1 <= size <= end - at - 4:
            raise wire.BadLength("oxm_header.length", f"is {size}, not 1 to {end - at - 4}")
        at += 4 + size
    return end


def _oxm_list(name: str) -> Part:
    """An ofp_match or ofp_stats: a header with a length that leaves out the padding to 8 bytes."""

    def check(data: bytes, at: int, end: int) -> int:
        if end - at < 8:
            raise wire.Truncated(name, f"{end - at} of 8 bytes are there")
        length = _u16(data, at + 2)
        if not 4 <= length <= end - at or _padded(length) > end - at:
            raise wire.BadLength(f"{name}.length", f"is {length}, not 4 to {end - at}")
        _tlvs(data, at + 4, at + length)
        return at + _padded(length)

    return check


_match = _oxm_list("ofp_match")
_stats = _oxm_list("ofp_stats")
_properties = _items("ofp_prop", 4, pads=True, most=_MOST_PROPERTIES)


def _actions(data: bytes, at: int, end: int) -> int:
    return _actions_within(0)(data, at, end)


def _actions_within(depth: int) -> Part:
    """A list of actions. A Nicira CT action contains actions; CONTROLLER2 and LEARN contain lists."""
    if depth > _MOST_NESTED:
        raise wire.BadLength("ofp_action", f"actions are nested more than {_MOST_NESTED} deep")

    def check(data: bytes, at: int, end: int) -> int:
        length, kind = end - at + 4, _u16(data, at - 4)
        if length < 8 or length % 8 or length != _ACTION_SIZES.get(kind, length):
            raise wire.BadLength("ofp_action.len", f"is {length} in an action of type {kind}")
        if _u16(data, at - 4) == wire.OFPAT_EXPERIMENTER and data[at : at + 4] == _NICIRA:
            _nicira_action(data, at, end, depth)
        return end

    return _items("ofp_action", 4, check)


_ACTION_SIZES = {0: 16, **dict.fromkeys((*range(11, 13), *range(15, 25), 26, 27, 29), 8), 28: 0}
"""The sizes of actions by type. The engines skip this size, whatever the action announces.

They cannot parse COPY_FIELD (28): they skip 12 of its bytes and take the rest for another action.
"""
_INSTRUCTION_SIZES = {1: 8, 2: 24, 6: 8}
_NXAST_CT, _NXAST_CONTROLLER2 = 35, 37
_CT_HEAD = 20
"""The bytes of a CT action from its experimenter id up to its actions."""
_CONTROLLER2_HEAD = 12
_NXAC2PT_USERDATA = 3


def _nicira_action(data: bytes, at: int, end: int, depth: int) -> None:
    subtype = _u16(data, at + 4)
    if subtype == _NXAST_CT:
        start = _fixed("nx_action_conntrack", _CT_HEAD)(data, at, end)
        _actions_within(depth + 1)(data, start, end)
    elif subtype == _NXAST_CONTROLLER2:
        start = _fixed("nx_action_controller2", _CONTROLLER2_HEAD)(data, at, end)
        _items("nx_action_controller2_prop", 4, _controller2_property, pads=True)(data, start, end)


def _controller2_property(data: bytes, at: int, end: int) -> int:
    """A property of CONTROLLER2 behind its type and length. The engines skip the size of its type.

    They would read the rest of a longer one as another property. Of empty user data they skip no padding.
    """
    kind, length = _u16(data, at - 4), end - at + 4
    right = length > 4 if kind == _NXAC2PT_USERDATA else _padded(length) == 8
    if not right:
        raise wire.BadLength("nx_action_controller2_prop.len", f"is {length} in a property of type {kind}")
    return end


def _instruction(data: bytes, at: int, end: int) -> int:
    """An instruction behind its type and length. The engines skip the size of its type."""
    kind, length = _u16(data, at - 4), end - at + 4
    if length < 8 or length != _INSTRUCTION_SIZES.get(kind, length):
        raise wire.BadLength("ofp_instruction.len", f"is {length} in an instruction of type {kind}")
    if kind in (3, 4, 5):
        return _actions(data, at + 4, end)
    if kind == 7:
        return _oxm_list("ofp_instruction_stat_trigger")(data, at + 4, end)
    return end


_instructions = _items("ofp_instruction", 4, _instruction)
_ids = _items("ofp_action_id", 4)
_FEATURES_IDS = (0, 1, 4, 5, 6, 7)
"""The types of ofp_table_feature_prop that list instructions or actions."""
_FEATURES_VALUES = 18
_feature_properties = _items(
    "ofp_table_feature_prop",
    4,
    _tail(
        4,
        _chosen(
            "ofp_table_feature_prop.type",
            {
                **{kind: _sequence(_fixed("ofp_table_feature_prop", 4), _ids) for kind in _FEATURES_IDS},
                _FEATURES_VALUES: _sequence(_fixed("ofp_table_feature_prop", 4), _tlvs),
            },
            at=0,
            other=_rest,
        ),
    ),
    pads=True,
    most=_MOST_PROPERTIES,
)
_bands = _items("ofp_meter_band", 16)


def _queue_property(data: bytes, at: int, end: int) -> int:
    """A queue property behind its 8 bytes. Of an unknown type, os-ken's parser does not advance."""
    kind = _u16(data, at - 8)
    if kind not in (1, 2, 0xFFFF) or end - at < 8:
        raise wire.BadLength("ofp_queue_prop", f"is of type {kind} and has {end - at + 8} bytes")
    return end


# -- messages -------------------------------------------------------------------------------------


def _hello(data: bytes, at: int, end: int) -> int:
    """The elements. The engines do not skip the padding behind an element, so there must be none."""
    return _items("ofp_hello_elem", 4, most=8)(data, at, end)


def _buckets(head: int, rest: Part = _actions) -> Part:
    return _items("ofp_bucket", head, rest, length_at=0)


def _bucket_15(data: bytes, at: int, end: int) -> int:
    """A bucket of OpenFlow 1.5 behind its 8 bytes: actions of an announced length, then properties."""
    return _announced("ofp_bucket.action_array_len", at - 6, _actions, _properties)(data, at, end)


def _announced(name: str, length_at: int, part: Part, then: Part) -> Part:
    """``part`` of the length at the absolute offset ``length_at``, and ``then`` up to the end."""

    def check(data: bytes, at: int, end: int) -> int:
        length = _u16(data, length_at)
        if length > end - at:
            raise wire.BadLength(name, f"is {length}, but {end - at} bytes are there")
        part(data, at, at + length)
        return then(data, at + length, end)

    return check


_buckets_15 = _buckets(8, _bucket_15)


def _group_15(data: bytes, at: int, end: int) -> int:
    """A group of OpenFlow 1.5 behind its 16 bytes: buckets of an announced length, then properties."""
    return _announced("ofp_group_desc.bucket_array_len", at - 8, _buckets_15, _properties)(data, at, end)


def _group_mod(data: bytes, at: int, end: int) -> int:
    start = _fixed("ofp_group_mod", 16)(data, at, end)
    return _announced("ofp_group_mod.bucket_array_len", at + 8, _buckets_15, _properties)(data, start, end)


def _forwarded(data: bytes, at: int, end: int) -> int:
    """The GROUP_MOD or METER_MOD of another controller, in OFPT_REQUESTFORWARD."""
    start = _fixed("ofp_requestforward.request", _HEADER)(data, at, end)
    version, kind, length = data[at], data[at + 1], _u16(data, at + 2)
    if version != data[0] or kind not in (_OFPT_GROUP_MOD, _OFPT_METER_MOD) or length != end - at:
        raise wire.BadLength(
            "ofp_requestforward.request", f"version {version}, type {kind}, {length} of {end - at} bytes"
        )
    return (_group_mod if kind == _OFPT_GROUP_MOD else _meter_mod)(data, start, end)


_meter_mod = _sequence(_fixed("ofp_meter_mod", 8), _bands)


def _flow_monitor(data: bytes, at: int, end: int) -> int:
    """One update behind its length and event. Only updates with the whole entry contain other lengths."""
    if _u16(data, at - 2) > 3:
        return _fixed("ofp_flow_update", 4)(data, at, end)
    return _sequence(_fixed("ofp_flow_update", 20), _match, _instructions)(data, at, end)


def _port_15(data: bytes, at: int, end: int) -> int:
    return _items("ofp_port", 40, _properties, length_at=4)(data, at, end)


def _one_port_15(data: bytes, at: int, end: int) -> int:
    if end - at >= 6 and _u16(data, at + 4) != end - at:
        raise wire.BadLength("ofp_port.length", f"is {_u16(data, at + 4)}, but {end - at} bytes are there")
    return _sequence(_fixed("ofp_port", 40), _properties)(data, at, end)


def _entries(name: str, head: int, part: Part = _rest, length_at: int = 0) -> Part:
    return _items(name, head, part, length_at=length_at)


_OFPMP_BOTH: dict[int, Part] = {
    0: _fixed("ofp_desc", 1056),
    3: _records("ofp_table_stats", 24),
    6: _entries("ofp_group_stats", 40, _records("ofp_bucket_counter", 16)),
    8: _fixed("ofp_group_features", 40),
    9: _entries("ofp_meter_stats", 40, _records("ofp_meter_band_stats", 16), length_at=4),
    10: _entries("ofp_meter_config", 8, _bands),
    11: _fixed("ofp_meter_features", 16),
    12: _entries("ofp_table_features", 64, _feature_properties),
    wire.OFPMP_EXPERIMENTER: _fixed("ofp_experimenter_multipart", 8),
}
_OFPMP_13 = {
    **_OFPMP_BOTH,
    1: _entries("ofp_flow_stats", 48, _sequence(_match, _instructions)),
    2: _fixed("ofp_aggregate_stats", 24),
    4: _records("ofp_port_stats", 112),
    5: _records("ofp_queue_stats", 40),
    7: _entries("ofp_group_desc", 8, _buckets(16)),
    13: _records("ofp_port", 64),
}
_OFPMP_15 = {
    **_OFPMP_BOTH,
    1: _entries("ofp_flow_desc", 24, _sequence(_match, _stats, _instructions)),
    2: _stats,
    4: _entries("ofp_port_stats", 80, _properties),
    5: _entries("ofp_queue_stats", 48, _properties),
    7: _entries("ofp_group_desc", 16, _group_15),
    13: _port_15,
    14: _entries("ofp_table_desc", 8, _properties),
    15: _entries("ofp_queue_desc", 16, _properties, length_at=8),
    16: _entries("ofp_flow_update", 4, _flow_monitor),
    17: _entries("ofp_flow_stats", 8, _sequence(_match, _stats)),
    18: _entries("ofp_controller_status", 16, _properties),
    19: _sequence(_fixed("ofp_bundle_features", 8), _properties),
}


def _multipart(parts: Mapping[int, Part]) -> Part:
    def body(data: bytes, at: int, end: int) -> int:
        return _chosen("ofp_multipart_reply.type", parts, at=-8)(data, at, end)

    return _sequence(_fixed("ofp_multipart_reply", 8), body)


_BUNDLE_CONTROL = (0x4F4E4600).to_bytes(4, "big") + (2300).to_bytes(4, "big")


def _experimenter(data: bytes, at: int, end: int) -> int:
    """A message of an experimenter. The engines parse only ONF's bundle messages of OpenFlow 1.3."""
    start = _fixed("ofp_experimenter", 8)(data, at, end)
    if data[at:start] != _BUNDLE_CONTROL:
        return end
    return _sequence(_fixed("onf_bundle_ctrl_msg", 8), _properties)(data, start, end)


_ANY_VERSION: dict[int, Part] = {
    OFPT_HELLO: _hello,
    wire.OFPT_ERROR: _sequence(_fixed("ofp_error_msg", 4), _rest),
    _OFPT_ECHO_REQUEST: _rest,
    _OFPT_ECHO_REPLY: _rest,
}
_BOTH: dict[int, Part] = {
    **_ANY_VERSION,
    wire.OFPT_EXPERIMENTER: _experimenter,
    6: _fixed("ofp_switch_features", 24),
    8: _fixed("ofp_switch_config", 4),
    10: _sequence(_fixed("ofp_packet_in", 16), _match, _fixed("ofp_packet_in.pad", 2), _rest),
    21: _rest,
    25: _fixed("ofp_role_reply", 16),
}
_MESSAGES: dict[int, dict[int, Part]] = {
    wire.OFP13: {
        **_BOTH,
        11: _sequence(_fixed("ofp_flow_removed", 40), _match),
        12: _sequence(_fixed("ofp_port_status", 8), _fixed("ofp_port", 64)),
        wire.OFPT_MULTIPART_REPLY: _multipart(_OFPMP_13),
        23: _sequence(
            _fixed("ofp_queue_get_config_reply", 8),
            _items("ofp_packet_queue", 16, _items("ofp_queue_prop", 8, _queue_property), length_at=8),
        ),
        27: _fixed("ofp_async_config", 24),
    },
    wire.OFP15: {
        **_BOTH,
        11: _sequence(_fixed("ofp_flow_removed", 16), _match, _stats),
        12: _sequence(_fixed("ofp_port_status", 8), _one_port_15),
        _OFPT_GROUP_MOD: _group_mod,
        wire.OFPT_MULTIPART_REPLY: _multipart(_OFPMP_15),
        27: _properties,
        _OFPT_METER_MOD: _meter_mod,
        30: _sequence(_fixed("ofp_role_status", 16), _properties),
        31: _sequence(_fixed("ofp_table_status", 8), _items("ofp_table_desc", 8, _properties, length_at=0)),
        32: _forwarded,
        33: _sequence(_fixed("ofp_bundle_ctrl_msg", 8), _properties),
        35: _items("ofp_controller_status", 16, _properties, length_at=0),
    },
}
"""The part behind the header, by OpenFlow version and message type."""


def check(message: bytes) -> None:
    """Check every length in ``message``, which has at least a header. Raises WireError.

    A message of the extension is not checked here: ``wire.decode_message`` checks it as a whole.
    """
    length = _u16(message, 2)
    if length != len(message) or length < _HEADER:
        raise wire.BadLength("ofp_header.length", f"is {length}, but {len(message)} bytes are there")
    part = _MESSAGES.get(message[0], _ANY_VERSION).get(message[1])
    if part is None:
        raise wire.UnknownType(
            "ofp_header.type", f"a switch does not send {message[1]} in OpenFlow version {message[0]}"
        )
    part(message, _HEADER, length)
