"""Splits a FLOW_MOD: the extension's actions become part of a Rule, all the rest is Open vSwitch's.

Pure: bytes and values in, bytes and values out.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from openflow_ext import wire
from openflow_ext.switch import openflow as of
from openflow_ext.switch.errors import Refused
from openflow_ext.switch.rules import LARGEST_WINDOW_BYTES, CountOp, Network, Rule, TcpMatch, WindowOp

_ETH_TYPES = {4: 0x0800, 6: 0x86DD}
_IPPROTO_TCP = 6
_COME_FIRST = (of.OFPIT_METER,)
"""What is carried out before apply-actions (OpenFlow 1.3.5, section 5.9)."""
_CARRIES_ACTIONS = (of.OFPIT_WRITE_ACTIONS, of.OFPIT_APPLY_ACTIONS)
_ID = wire.WEIR_EXPERIMENTER_ID.to_bytes(4, "big")


@dataclass(frozen=True, slots=True)
class Split:
    """A FLOW_MOD in two parts: ``rest`` goes to Open vSwitch, ``actions`` are the extension's."""

    rest: bytes
    actions: tuple[bytes, ...]


def may_extend(flow_mod: bytes) -> bool:
    """A quick look: False when ``flow_mod`` surely carries no action of the extension."""
    return _ID in flow_mod


def refuse_windows(match: bytes) -> None:
    """Raises Refused for an ofp_match with tcp_window: neither part of the switch can match on it."""
    if _ID not in match:
        return
    if of.TCP_WINDOW in of.read_match(match):
        raise _bad_match(of.OFPBMC_BAD_FIELD, "tcp_window: the data plane cannot match on the window")


def reinserted(instructions: bytes, actions: bytes) -> bytes:
    """``instructions`` with ``actions`` first in their apply-actions. Raises ValueError."""
    kept = list(of.tlvs(instructions))
    before = b"".join(raw for kind, raw in kept if kind in _COME_FIRST)
    rest = [(kind, raw) for kind, raw in kept if kind not in _COME_FIRST]
    applied = b"".join(raw[8:] for kind, raw in rest if kind == of.OFPIT_APPLY_ACTIONS)
    apply = struct.pack("!HH4x", of.OFPIT_APPLY_ACTIONS, 8 + len(actions) + len(applied)) + actions + applied
    return before + apply + b"".join(raw for kind, raw in rest if kind != of.OFPIT_APPLY_ACTIONS)


def actions_of(rule: Rule) -> bytes:
    """The actions by which a controller would write ``rule``: with_actions' inverse."""
    found: list[wire.Action] = []
    match rule.window_op:
        case WindowOp.MOD_WINDOW:
            found.append(wire.ModWindow(rule.window_bytes, rule.alpha))
        case WindowOp.SET_WINDOW:
            found.append(wire.SetWindow(rule.window_bytes))
        case WindowOp.FAIR_SHARE:
            found.append(wire.SetWindow(wire.FAIR_SHARE))
    port = of.OFPP_ANY if rule.count_port is None else rule.count_port
    match rule.count_op:
        case CountOp.INCREMENT_NI:
            found.append(wire.IncrementNi(port))
        case CountOp.DECREMENT_NI:
            found.append(wire.DecrementNi(port))
    return b"".join(map(wire.encode_action, found))


@lru_cache(1 << 16)
def tcp_match_in(match: bytes) -> TcpMatch | None:
    """What an ofp_match says, where an extension entry can say it; the same ones come again and again."""
    try:
        return tcp_match(of.read_match(match))
    except Refused:
        return None


def split(message: bytes) -> Split:
    """Take the extension's actions out of the apply- and write-actions of a FLOW_MOD.

    An instruction left without an action goes too; every other byte stays, and so does the xid.
    Raises ValueError where the lengths lie: Open vSwitch has the word on such a message.
    """
    instructions = of.FlowMod.parse(message).instructions
    kept: list[bytes] = []
    ours: list[bytes] = []
    for kind, instruction in of.tlvs(instructions):
        rest, taken = _take_actions(instruction) if kind in _CARRIES_ACTIONS else (instruction, [])
        ours += taken
        if rest:
            kept.append(rest)
    if not ours:
        return Split(message, ())
    head = message[: len(message) - len(instructions)]
    return Split(of.resized(head + b"".join(kept)), tuple(ours))


def _take_actions(instruction: bytes) -> tuple[bytes, list[bytes]]:
    """An instruction without our actions (empty: nothing else was in it), and those."""
    kept: list[bytes] = []
    ours: list[bytes] = []
    for _, action in of.tlvs(instruction[8:]):
        (ours if wire.is_extension_action(action) else kept).append(action)
    if not ours:
        return instruction, []
    actions = b"".join(kept)
    if not actions:
        return b"", ours
    return instruction[:2] + struct.pack("!H", 8 + len(actions)) + instruction[4:8] + actions, ours


def outputs(instructions: bytes) -> tuple[frozenset[int], frozenset[int]]:
    """The ports and the groups to which instructions send (for deletes by out_port)."""
    ports: set[int] = set()
    groups: set[int] = set()
    for kind, instruction in of.tlvs(instructions):
        if kind not in _CARRIES_ACTIONS:
            continue
        for action_type, action in of.tlvs(instruction[8:]):
            if action_type in (of.OFPAT_OUTPUT, of.OFPAT_GROUP):
                target = int.from_bytes(action[4:8], "big")
                (ports if action_type == of.OFPAT_OUTPUT else groups).add(target)
    return frozenset(ports), frozenset(groups)


def sends_to(instructions: bytes, out_port: int, out_group: int) -> bool:
    """Whether a command restricted to a port and a group (OFPP_ANY, OFPG_ANY: not) is about an entry."""
    if (out_port, out_group) == (of.OFPP_ANY, of.OFPG_ANY):
        return True
    ports, groups = outputs(instructions)
    return out_port in (of.OFPP_ANY, *ports) and out_group in (of.OFPG_ANY, *groups)


def rule_for(flow_mod: of.FlowMod, actions: Iterable[bytes]) -> Rule:
    """The extension part of an entry as a Rule. Raises Refused with the error that fits."""
    rule = Rule(
        table_id=flow_mod.table_id,
        priority=flow_mod.priority,
        cookie=flow_mod.cookie,
        match=tcp_match(of.read_match(flow_mod.match)),
        idle_timeout_s=flow_mod.idle_timeout_s,
        hard_timeout_s=flow_mod.hard_timeout_s,
    )
    if flow_mod.table_id == of.OFPTT_ALL:
        raise Refused(of.OFPET_FLOW_MOD_FAILED, of.OFPFMFC_BAD_TABLE_ID, "an entry needs one table")
    return with_actions(rule, actions)


def with_actions(rule: Rule, actions: Iterable[bytes]) -> Rule:
    """``rule`` with the operations of ``actions`` instead of its own. Raises Refused."""
    rule = dataclasses.replace(
        rule, window_op=WindowOp.NONE, window_bytes=0, alpha=0, count_op=CountOp.NONE, count_port=None
    )
    for raw in actions:
        rule = _with_action(rule, _decode_action(raw))
    if rule.count_op and rule.match.in_port is not None:
        raise _bad_action(of.OFPBAC_MATCH_INCONSISTENT, "a count action with in_port: unknown at egress")
    return rule


def check_modify(flow_mod: of.FlowMod, actions: Iterable[bytes]) -> None:
    """Raises Refused for ``actions`` that no entry can carry, also where a MODIFY is about none."""
    with_actions(Rule(flow_mod.table_id, flow_mod.priority, flow_mod.cookie), actions)


def _decode_action(raw: bytes) -> wire.Action:
    try:
        return wire.decode_action(raw)
    except wire.UnknownType as error:
        raise _bad_action(of.OFPBAC_BAD_EXP_TYPE, str(error)) from error
    except wire.BadValue as error:
        raise _bad_action(of.OFPBAC_BAD_ARGUMENT, str(error)) from error
    except wire.WireError as error:
        raise _bad_action(of.OFPBAC_BAD_LEN, str(error)) from error


def _with_action(rule: Rule, action: wire.Action) -> Rule:
    match action:
        case wire.ModWindow(window_bytes, alpha):
            _check_window(rule, window_bytes)
            return dataclasses.replace(
                rule, window_op=WindowOp.MOD_WINDOW, window_bytes=window_bytes, alpha=alpha
            )
        case wire.SetWindow(wire.FAIR_SHARE):
            _check_window(rule, 1)
            return dataclasses.replace(rule, window_op=WindowOp.FAIR_SHARE)
        case wire.SetWindow(value):
            _check_window(rule, value)
            return dataclasses.replace(rule, window_op=WindowOp.SET_WINDOW, window_bytes=value)
        case wire.IncrementNi(port) | wire.DecrementNi(port):
            if rule.count_op:
                raise _bad_action(of.OFPBAC_TOO_MANY, "two count actions in one entry")
            op = CountOp.INCREMENT_NI if isinstance(action, wire.IncrementNi) else CountOp.DECREMENT_NI
            return dataclasses.replace(rule, count_op=op, count_port=None if port == of.OFPP_ANY else port)


def _check_window(rule: Rule, window_bytes: int) -> None:
    if rule.window_op:
        raise _bad_action(of.OFPBAC_TOO_MANY, "two window actions in one entry")
    if not 1 <= window_bytes <= LARGEST_WINDOW_BYTES:
        raise _bad_action(of.OFPBAC_BAD_ARGUMENT, f"window {window_bytes}: not 1 to {LARGEST_WINDOW_BYTES}")


def _bad_action(code: int, reason: str) -> Refused:
    return Refused(of.OFPET_BAD_ACTION, code, reason)


def tcp_match(fields: of.Fields) -> TcpMatch:
    """What an extension entry can match, from an entry's fields. Raises Refused (OFPET_BAD_MATCH)."""
    rest = dict(fields)
    eth_type = _take_exact(rest, of.ETH_TYPE)
    ip_proto = _take_exact(rest, of.IP_PROTO)
    if eth_type is None or ip_proto is None:
        raise _bad_match(of.OFPBMC_BAD_WILDCARDS, "an extension entry needs eth_type and ip_proto")
    if eth_type not in _ETH_TYPES.values() or ip_proto != _IPPROTO_TCP:
        raise _bad_match(of.OFPBMC_BAD_VALUE, "an extension entry matches TCP over IPv4 or IPv6 only")
    version = 4 if eth_type == _ETH_TYPES[4] else 6
    flags, flags_mask = rest.pop(of.TCP_FLAGS, (0, 0))
    match = TcpMatch(
        ip_version=version,
        src=_take_network(rest, f"ipv{version}_src"),
        dst=_take_network(rest, f"ipv{version}_dst"),
        src_port=_take_exact(rest, of.TCP_SRC),
        dst_port=_take_exact(rest, of.TCP_DST),
        flags=flags,
        flags_mask=flags_mask,
        in_port=_take_exact(rest, of.IN_PORT),
    )
    if any(str(name).startswith("ipv") for name in rest):
        raise _bad_match(of.OFPBMC_BAD_PREREQ, "addresses of the other IP version")
    if rest:
        raise _bad_match(of.OFPBMC_BAD_FIELD, f"an extension entry cannot match {', '.join(map(str, rest))}")
    return match


def _take_exact(fields: of.Fields, name: str) -> int | None:
    if name not in fields:
        return None
    value, mask = fields.pop(name)
    if mask != of.full_mask(name):
        raise _bad_match(of.OFPBMC_BAD_MASK, f"an extension entry cannot mask {name}")
    return value


def _take_network(fields: of.Fields, name: str) -> Network | None:
    if name not in fields:
        return None
    value, mask = fields.pop(name)
    every_bit = of.full_mask(name)
    wild_bits = every_bit & ~mask
    if wild_bits & (wild_bits + 1):
        raise _bad_match(of.OFPBMC_BAD_NW_ADDR_MASK, f"the mask of {name} is not contiguous")
    prefix_length = mask.bit_count()
    if name.startswith("ipv4"):
        return ipaddress.IPv4Network((value, prefix_length))
    return ipaddress.IPv6Network((value, prefix_length))


def _bad_match(code: int, reason: str) -> Refused:
    return Refused(of.OFPET_BAD_MATCH, code, reason)


def fields_of(match: TcpMatch) -> of.Fields:
    """The fields of an entry whose extension part is ``match``: tcp_match's inverse."""
    exact = {
        of.ETH_TYPE: _ETH_TYPES[match.ip_version],
        of.IP_PROTO: _IPPROTO_TCP,
        of.TCP_SRC: match.src_port,
        of.TCP_DST: match.dst_port,
        of.IN_PORT: match.in_port,
    }
    fields: of.Fields = {n: (value, of.full_mask(n)) for n, value in exact.items() if value is not None}
    for name, network in (("src", match.src), ("dst", match.dst)):
        if network is not None and network.prefixlen:
            fields[f"ipv{match.ip_version}_{name}"] = (int(network.network_address), int(network.netmask))
    if match.flags_mask:
        fields[of.TCP_FLAGS] = (match.flags, match.flags_mask)
    return fields


def covers(general: of.Fields, special: of.Fields) -> bool:
    """Whether every packet that ``special`` matches is matched by ``general`` (non-strict commands)."""
    for name, (value, mask) in general.items():
        have, have_mask = special.get(name, (0, 0))
        if have_mask & mask != mask or have & mask != value:
            return False
    return True
