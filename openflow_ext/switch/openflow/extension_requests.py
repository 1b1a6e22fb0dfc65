"""Answers to the extension's own messages: PORT_CONFIG, the port counters, ARM, FLOW_REPORT_CONFIG."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator
from dataclasses import replace

from openflow_ext import wire
from openflow_ext.switch.dataplane.interface import (
    DataPlane,
    DataPlaneError,
    NoSuchPort,
    PortSettings,
    TableFull,
    UnsupportedMatch,
)
from openflow_ext.switch.dataplane.rules import Rule, TcpMatch, WindowOp
from openflow_ext.switch.errors import Declined
from openflow_ext.switch.openflow import messages as of
from openflow_ext.switch.ovs.ports import Port, Ports
from weir_base.window import LARGEST_WINDOW_BYTES

_GROUPS = {
    wire.PortConfigFlags.ALARM: ("k_pkts", "rtt_us", "cookie", "priority"),
    wire.PortConfigFlags.WINDOW: ("capacity_bps", "common_rtt_us", "least_window_bytes"),
    wire.PortConfigFlags.MARK: ("mark_mode", "mark_min_pkts", "mark_max_pkts"),
}


def answer(
    message: bytes,
    ports: Ports,
    dataplane: DataPlane,
    listen: Callable[[wire.FlowReportConfig], None],
    is_slave: bool,
) -> bytes:
    """Carry out one extension message of a controller. Returns the reply. Raises Declined with the error.

    ``listen`` carries out FLOW_REPORT_CONFIG. A SLAVE may only read and request flow reports.
    """
    version, _, _, xid = of.HEADER.unpack_from(message)
    try:
        request = wire.decode_message(message)
        if is_slave and _changes(request):
            raise Declined(
                of.error(message, of.OFPET_BAD_REQUEST, of.OFPBRC_IS_SLAVE),
                "a SLAVE may not change the switch",
            )
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
    """Whether a request changes the switch for other controllers."""
    match request:
        case wire.PortConfig():
            return bool(_groups_set(request)) or _switches(request)
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
            yield from _replies(_records(port_no, ports, dataplane))
        case wire.Arm(port_no, entries):
            ports.arm(port_no, _armed_rules(entries))
        case wire.FlowReportConfig():
            listen(request)
        case other:
            raise wire.UnknownType("exp_type", f"{type(other).__name__} is not a request")


def _error(request: bytes, code: wire.ErrorCode) -> bytes:
    version, _, _, xid = of.HEADER.unpack_from(request)
    refusal = wire.ExperimenterError(code, request[: of.ERROR_DATA_SIZE])
    return wire.encode_message(refusal, version, xid)


def _armed_rules(entries: tuple[wire.ArmEntry, ...]) -> list[Rule]:
    """The rules of the entries of an ARM. Raises BadValue."""
    rules = [_armed_rule(entry) for entry in entries]
    if len({rule.match for rule in rules}) < len(rules):
        raise wire.BadValue("arm.entries", "contain a 5-tuple twice")
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
    """The names of the settings that a PORT_CONFIG changes."""
    if config.flags & wire.PortConfigFlags.READ:
        return []
    return [name for group, fields in _GROUPS.items() if config.flags & group for name in fields]


def _switches(config: wire.PortConfig) -> bool:
    """Whether a PORT_CONFIG turns all ports off or on."""
    flags = wire.PortConfigFlags
    return config.flags & (flags.SWITCH | flags.READ) == flags.SWITCH


def _configure(config: wire.PortConfig, ports: Ports) -> wire.PortConfigReply:
    """Change the groups of settings that the flags name. The reply states all settings in force."""
    if not config.flags & wire.PortConfigFlags.READ:
        _check(config)
    if names := _groups_set(config):
        changes = {name: int(getattr(config, name)) for name in names}
        if config.flags & wire.PortConfigFlags.ALARM:
            changes["alarm"] = config.k_pkts > 0
        if _sets_allowance(config, ports):
            changes["corrects_allowance"] = bool(config.flags & wire.PortConfigFlags.ALLOWANCE)
            changes["omits"] = int(config.flags & wire.OMISSIONS)
            changes["by_host"] = bool(config.flags & wire.PortConfigFlags.BY_HOST)
        if config.flags & wire.PortConfigFlags.WINDOW:
            changes["observes_share"] = bool(config.flags & wire.PortConfigFlags.OBSERVE)
        ports.configure(config.port_no, **changes)
    if _switches(config):
        ports.switch(config.off)
    settings, capacity_bps = ports.in_force(config.port_no)
    return _reply(config.port_no, settings, capacity_bps, ports.off)


def _sets_allowance(config: wire.PortConfig, ports: Ports) -> bool:
    """Whether ALLOWANCE and OMIT flags decide. Those with a common RTT have precedence over those without."""
    if config.flags & wire.PortConfigFlags.WINDOW:
        return True
    settings, _ = ports.in_force(config.port_no)
    return bool(config.flags & wire.PortConfigFlags.ALLOWANCE) and not settings.common_rtt_us


def _check(config: wire.PortConfig) -> None:
    flags = wire.PortConfigFlags
    if config.flags & flags.ALLOWANCE and not config.flags & (flags.WINDOW | flags.ALARM):
        raise wire.BadValue("port_config.flags", "ALLOWANCE needs WINDOW or ALARM")
    if config.flags & wire.OMISSIONS and not config.flags & (flags.WINDOW | flags.ALLOWANCE):
        raise wire.BadValue("port_config.flags", "OMIT_... needs WINDOW or ALLOWANCE")
    if config.flags & flags.OBSERVE and not config.flags & flags.WINDOW:
        raise wire.BadValue("port_config.flags", "OBSERVE needs WINDOW")
    if config.flags & flags.BY_HOST and not (config.flags & flags.WINDOW and config.flags & flags.ALLOWANCE):
        raise wire.BadValue("port_config.flags", "BY_HOST needs WINDOW and ALLOWANCE")
    if config.flags & flags.BY_HOST and config.flags & flags.OMIT_ACTIVE_SENDERS:
        raise wire.BadValue(
            "port_config.flags", "BY_HOST divides among active senders: not with OMIT_ACTIVE_SENDERS"
        )
    if config.flags & flags.SWITCH and config.port_no != of.OFPP_ANY:
        raise wire.BadValue("port_config.port_no", "must be OFPP_ANY with SWITCH")
    if config.flags & flags.ALLOWANCE and config.flags & flags.WINDOW and not config.common_rtt_us:
        raise wire.BadValue("port_config.common_rtt_us", "must not be 0 with WINDOW and ALLOWANCE")
    if config.flags & flags.ALARM and config.k_pkts and not config.rtt_us:
        raise wire.BadValue("port_config.rtt_us", "must not be 0 if k_pkts is set")
    if config.flags & flags.WINDOW and config.least_window_bytes > LARGEST_WINDOW_BYTES:
        raise wire.BadValue("port_config.least_window_bytes", f"must not exceed {LARGEST_WINDOW_BYTES}")
    if config.flags & flags.MARK:
        if config.mark_mode != wire.MarkMode.OFF and not config.mark_min_pkts:
            raise wire.BadValue("port_config.mark_min_pkts", "must not be 0 if packets are marked")
        if config.mark_mode == wire.MarkMode.RAMP and config.mark_min_pkts >= config.mark_max_pkts:
            raise wire.BadValue("port_config.mark_max_pkts", "must be above mark_min_pkts")


def _reply(port_no: int, settings: PortSettings, capacity_bps: int, off: bool) -> wire.PortConfigReply:
    flags = wire.PortConfigFlags(settings.omits)
    if settings.alarm:
        flags |= wire.PortConfigFlags.ALARM
    if settings.common_rtt_us:
        flags |= wire.PortConfigFlags.WINDOW
    if settings.corrects_allowance:
        flags |= wire.PortConfigFlags.ALLOWANCE
    if settings.mark_mode:
        flags |= wire.PortConfigFlags.MARK
    if settings.observes_share:
        flags |= wire.PortConfigFlags.OBSERVE
    if settings.by_host:
        flags |= wire.PortConfigFlags.BY_HOST
    if off:
        flags |= wire.PortConfigFlags.SWITCH
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
        off=off,
    )


def _records(port_no: int, ports: Ports, dataplane: DataPlane) -> list[wire.PortCountersRecord]:
    """The counters of one port, or of all by OFPP_ANY. Raises NoSuchPort."""
    if port_no != of.OFPP_ANY:
        port = ports.numbered(port_no)
        counters = dataplane.counters(port.link.ifindex) if port.attached else None
        return [_record(port, counters)]
    found = dataplane.counters_of([port.link.ifindex for port in ports if port.attached])
    ordered = sorted(ports, key=lambda port: port.link.ofport)
    return [_record(port, found.get(port.link.ifindex)) for port in ordered]


def _record(port: Port, counters: wire.PortCountersRecord | None) -> wire.PortCountersRecord:
    if counters is None:
        return wire.PortCountersRecord(port.link.ofport, capacity_bps=port.capacity_bps)
    if counters.port_no != port.link.ofport:
        return replace(counters, port_no=port.link.ofport)
    return counters


def _replies(records: list[wire.PortCountersRecord]) -> Iterator[wire.PortCountersReply]:
    step = wire.PORT_COUNTERS_MAX
    for at in range(0, len(records) or 1, step):
        yield wire.PortCountersReply(tuple(records[at : at + step]), more=at + step < len(records))
