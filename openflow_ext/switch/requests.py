"""Answers to the extension's own messages: PORT_CONFIG, the port counters, ARM, FLOW_REPORT_CONFIG."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator

from openflow_ext import wire
from openflow_ext.switch import openflow as of
from openflow_ext.switch.dataplane import (
    DataPlane,
    DataPlaneError,
    NoShare,
    NoSuchPort,
    PortCounters,
    PortSettings,
    TableFull,
    UnsupportedMatch,
)
from openflow_ext.switch.errors import Declined
from openflow_ext.switch.ports import Port, Ports
from openflow_ext.switch.rules import LARGEST_WINDOW_BYTES, Rule, TcpMatch, WindowOp

_GROUPS = {
    wire.PortConfigFlags.ALARM: ("k_pkts", "rtt_us", "cookie", "priority"),
    wire.PortConfigFlags.WINDOW: ("capacity_bps", "common_rtt_us", "least_window_bytes"),
    wire.PortConfigFlags.MARK: ("mark_mode", "mark_min_pkts", "mark_max_pkts"),
}

_NO_SHARE = {
    NoShare.CAPACITY: wire.PortCountersFlags.NO_CAPACITY,
    NoShare.QUEUE: wire.PortCountersFlags.NO_QUEUE,
    NoShare.TABLE: wire.PortCountersFlags.TABLE_FULL,
}
_AS_FLAGS = ("alarm_up", "no_share")


def answer(
    message: bytes,
    ports: Ports,
    dataplane: DataPlane,
    listen: Callable[[wire.FlowReportConfig], None],
    is_slave: bool,
) -> bytes:
    """Carry out one extension message of a controller; the reply or the error that goes back.

    ``listen`` carries out FLOW_REPORT_CONFIG. A SLAVE may only read and listen. Raises Declined.
    """
    version, _, _, xid = of.HEADER.unpack_from(message)
    try:
        request = wire.decode_message(message)
        if is_slave and _changes(request):
            raise Declined(of.error(message, of.OFPET_BAD_REQUEST, of.OFPBRC_IS_SLAVE), "it is a SLAVE")
        return b"".join(
            wire.encode_message(reply, version, xid)
            for reply in _carry_out(request, ports, dataplane, listen)
        )
    except wire.UnknownType as error:
        refusal = of.error(message, of.OFPET_BAD_REQUEST, of.OFPBRC_BAD_EXP_TYPE)
        raise Declined(refusal, str(error)) from error
    except wire.WireError as error:
        raise Declined(_error(message, error.code), str(error)) from error
    except NoSuchPort as error:
        raise Declined(_error(message, wire.ErrorCode.BAD_PORT), str(error)) from error
    except UnsupportedMatch as error:
        raise Declined(_error(message, wire.ErrorCode.BAD_VALUE), str(error)) from error
    except TableFull as error:
        refusal = of.error(message, of.OFPET_FLOW_MOD_FAILED, of.OFPFMFC_TABLE_FULL)
        raise Declined(refusal, str(error)) from error
    except DataPlaneError as error:
        raise Declined(_error(message, wire.ErrorCode.NO_DATAPLANE), str(error)) from error


def _changes(request: wire.Message) -> bool:
    """Whether a request changes the switch for others."""
    match request:
        case wire.PortConfig():
            return bool(_groups_set(request))
        case wire.Arm():
            return True
    return False


def _carry_out(
    request: wire.Message,
    ports: Ports,
    dataplane: DataPlane,
    listen: Callable[[wire.FlowReportConfig], None],
) -> Iterator[wire.Message]:
    match request:
        case wire.PortConfig():
            yield _configure(request, ports)
        case wire.PortCountersRequest(port_no):
            yield from _replies([_record(port, dataplane) for port in _asked(port_no, ports)])
        case wire.Arm(port_no, entries):
            ports.arm(port_no, _armed_rules(entries))
        case wire.FlowReportConfig():
            listen(request)
        case other:
            raise wire.UnknownType("exp_type", f"{type(other).__name__} is no request")


def _error(request: bytes, code: wire.ErrorCode) -> bytes:
    version, _, _, xid = of.HEADER.unpack_from(request)
    refusal = wire.ExperimenterError(code, request[: of.ERROR_DATA_SIZE])
    return wire.encode_message(refusal, version, xid)


def _armed_rules(entries: tuple[wire.ArmEntry, ...]) -> list[Rule]:
    """The rules that entries of ARM stand for. Raises BadValue."""
    rules = [_armed_rule(entry) for entry in entries]
    if len({rule.match for rule in rules}) < len(rules):
        raise wire.BadValue("arm.entries", "hold a 5-tuple twice")
    return rules


def _armed_rule(entry: wire.ArmEntry) -> Rule:
    if not 1 <= entry.window_bytes <= LARGEST_WINDOW_BYTES:
        raise wire.BadValue("arm_entry.window_bytes", f"is not 1 to {LARGEST_WINDOW_BYTES}")
    match = TcpMatch(
        ip_version=entry.src.version,
        src=ipaddress.ip_network(entry.src),
        dst=ipaddress.ip_network(entry.dst),
        src_port=entry.src_port,
        dst_port=entry.dst_port,
    )
    return Rule(
        table_id=entry.table_id,
        priority=entry.priority,
        cookie=entry.cookie,
        match=match,
        window_op=WindowOp.MOD_WINDOW,
        window_bytes=entry.window_bytes,
        alpha=entry.alpha,
        hard_timeout_s=entry.hard_timeout_s,
    )


def _groups_set(config: wire.PortConfig) -> list[str]:
    """The fields that a PORT_CONFIG sets."""
    if config.flags & wire.PortConfigFlags.READ:
        return []
    return [name for group, fields in _GROUPS.items() if config.flags & group for name in fields]


def _configure(config: wire.PortConfig, ports: Ports) -> wire.PortConfigReply:
    """Change the groups that the flags name; answer with all that is in force then."""
    if names := _groups_set(config):
        _check(config)
        changes = {name: int(getattr(config, name)) for name in names}
        if config.flags & wire.PortConfigFlags.ALARM:
            changes["alarm"] = config.k_pkts > 0
        ports.configure(config.port_no, **changes)
    settings, capacity_bps = ports.in_force(config.port_no)
    return _reply(config.port_no, settings, capacity_bps)


def _check(config: wire.PortConfig) -> None:
    flags = wire.PortConfigFlags
    if config.flags & flags.ALARM and config.k_pkts and not config.rtt_us:
        raise wire.BadValue("port_config.rtt_us", "cannot be 0 with an alarm")
    if config.flags & flags.WINDOW and config.least_window_bytes > LARGEST_WINDOW_BYTES:
        raise wire.BadValue("port_config.least_window_bytes", f"is over {LARGEST_WINDOW_BYTES}")
    if config.flags & flags.MARK:
        if config.mark_mode != wire.MarkMode.OFF and not config.mark_min_pkts:
            raise wire.BadValue("port_config.mark_min_pkts", "cannot be 0 with marking")
        if config.mark_mode == wire.MarkMode.RAMP and config.mark_min_pkts >= config.mark_max_pkts:
            raise wire.BadValue("port_config.mark_max_pkts", "is not over mark_min_pkts")


def _reply(port_no: int, settings: PortSettings, capacity_bps: int) -> wire.PortConfigReply:
    flags = wire.PortConfigFlags.NONE
    if settings.alarm:
        flags |= wire.PortConfigFlags.ALARM
    if settings.common_rtt_us:
        flags |= wire.PortConfigFlags.WINDOW
    if settings.mark_mode:
        flags |= wire.PortConfigFlags.MARK
    return wire.PortConfigReply(
        port_no=port_no,
        flags=flags,
        k_pkts=settings.k_pkts,
        rtt_us=settings.rtt_us,
        capacity_bps=capacity_bps,
        common_rtt_us=settings.common_rtt_us,
        least_window_bytes=settings.least_window_bytes,
        cookie=settings.cookie,
        priority=settings.priority,
        mark_mode=wire.MarkMode(settings.mark_mode),
        mark_min_pkts=settings.mark_min_pkts,
        mark_max_pkts=settings.mark_max_pkts,
    )


def _asked(port_no: int, ports: Ports) -> list[Port]:
    if port_no == of.OFPP_ANY:
        return sorted(ports, key=lambda port: port.link.ofport)
    return [ports.numbered(port_no)]


def _record(port: Port, dataplane: DataPlane) -> wire.PortCountersRecord:
    if not port.attached:
        return wire.PortCountersRecord(port.link.ofport, capacity_bps=port.capacity_bps)
    counters = dataplane.counters(port.link.ifindex)
    flags = wire.PortCountersFlags.ATTACHED
    if counters.alarm_up:
        flags |= wire.PortCountersFlags.ALARM_UP
    for reason, flag in _NO_SHARE.items():
        if counters.no_share & reason:
            flags |= flag
    return wire.PortCountersRecord(port_no=port.link.ofport, flags=flags, **_plain(counters))


def _plain(counters: PortCounters) -> dict[str, int]:
    return {name: getattr(counters, name) for name in counters.__slots__ if name not in _AS_FLAGS}


def _replies(records: list[wire.PortCountersRecord]) -> Iterator[wire.PortCountersReply]:
    step = wire.PORT_COUNTERS_MAX
    for at in range(0, len(records) or 1, step):
        yield wire.PortCountersReply(tuple(records[at : at + step]), more=at + step < len(records))
