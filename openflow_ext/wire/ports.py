"""ofp_port of OpenFlow 1.3 and 1.5 to bytes and back."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

from openflow_ext.wire.errors import BadLength, BadValue, Truncated
from openflow_ext.wire.layout import Layout
from openflow_ext.wire.openflow import OFP13, check_version
from openflow_ext.wire.types import OfpPort

__all__ = ["decode_port", "encode_port"]

_HW_ADDR = re.compile(r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}")
_SPEEDS = ("curr", "advertised", "supported", "peer", "curr_speed", "max_speed")
_SPEEDS_SPEC = " ".join(f"{name}:I" for name in _SPEEDS)
_PORT_13 = Layout("ofp_port", f"port_no:I 4x hw_addr:6s 2x name:16s config:I state:I {_SPEEDS_SPEC}")
_PORT_15 = Layout("ofp_port", "port_no:I length:H 2x hw_addr:6s 2x name:16s config:I state:I")
_PROPERTY = Layout("ofp_port_desc_prop", "type:H length:H")
_ETHERNET = Layout("ofp_port_desc_prop_ethernet", f"type:H length:H 4x {_SPEEDS_SPEC}")
_OFPPDPT_ETHERNET = 0


def decode_port(data: bytes, version: int = OFP13) -> OfpPort:
    """Decode ``data``, which is exactly one ofp_port. Raises WireError."""
    port, rest = take_port(version, data)
    if rest:
        raise BadLength("ofp_port", f"{len(rest)} bytes left over")
    return port


def take_port(version: int, data: bytes) -> tuple[OfpPort, bytes]:
    """Decode the ofp_port at the start of ``data``; also returns the bytes after it. Raises WireError."""
    check_version(version)
    layout = _PORT_13 if version == OFP13 else _PORT_15
    values = layout.unpack(data[: layout.size])
    values["hw_addr"] = values["hw_addr"].hex(":")
    values["name"] = values["name"].split(b"\0", 1)[0]
    length = values.pop("length", layout.size)
    if length < layout.size:
        raise BadLength("ofp_port.length", f"{length} bytes instead of {layout.size} or more")
    if length > len(data):
        raise Truncated("ofp_port.length", f"{length} bytes announced, {len(data)} there")
    if version != OFP13:
        values |= _decode_properties(data[layout.size : length])
    return OfpPort(**values), data[length:]


def _decode_properties(data: bytes) -> dict[str, Any]:
    values: dict[str, Any] = {"ethernet": False}
    others = []
    while data:
        head = _PROPERTY.unpack(data[: _PROPERTY.size])
        length = head["length"]
        if length < _PROPERTY.size:
            raise BadLength("ofp_port_desc_prop.length", f"{length} bytes instead of 4 or more")
        padded = length + -length % 8
        if padded > len(data):
            raise Truncated("ofp_port_desc_prop.length", f"{padded} bytes announced, {len(data)} there")
        if head["type"] != _OFPPDPT_ETHERNET:
            others.append(data[:length])
        elif values["ethernet"]:
            raise BadValue("ofp_port_desc_prop.type", "ETHERNET (0) occurs twice")
        else:
            ethernet = _ETHERNET.unpack(data[:length])
            values |= {name: ethernet[name] for name in _SPEEDS} | {"ethernet": True}
        data = data[padded:]
    return values | {"properties": tuple(others)}


def encode_port(port: OfpPort, version: int = OFP13) -> bytes:
    """Encode an ofp_port. Raises BadValue, also if the version cannot carry a field."""
    check_version(version)
    if not _HW_ADDR.fullmatch(port.hw_addr):
        raise BadValue("ofp_port.hw_addr", f"cannot be {port.hw_addr!r}")
    if len(port.name) > 16 or b"\0" in port.name:
        raise BadValue("ofp_port.name", f"cannot be {port.name!r}")
    values = asdict(port) | {"hw_addr": bytes.fromhex(port.hw_addr.replace(":", ""))}
    if version == OFP13:
        if port.properties or not port.ethernet:
            raise BadValue("ofp_port.properties", "OpenFlow 1.3 has none, and needs ethernet=True")
        return _PORT_13.pack(**values)
    properties = _encode_properties(port)
    return _PORT_15.pack(**values, length=_PORT_15.size + len(properties)) + properties


def _encode_properties(port: OfpPort) -> bytes:
    speeds = {name: getattr(port, name) for name in _SPEEDS}
    encoded = []
    if port.ethernet:
        encoded.append(_ETHERNET.pack(type=_OFPPDPT_ETHERNET, length=_ETHERNET.size, **speeds))
    elif any(speeds.values()):
        raise BadValue("ofp_port.ethernet", f"cannot be False with {speeds}")
    for data in port.properties:
        of_type, length = data[:2], int.from_bytes(data[2:4], "big")
        if of_type == b"\0\0" or length != len(data) or length < _PROPERTY.size:
            raise BadValue("ofp_port.properties", f"cannot hold {data!r}")
        encoded.append(data + bytes(-len(data) % 8))
    return b"".join(encoded)
