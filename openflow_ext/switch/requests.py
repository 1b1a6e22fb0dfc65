"""Answers to the extension's own messages: PORT_CONFIG and the port counters."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from openflow_ext import wire
from openflow_ext.switch import openflow as of
from openflow_ext.switch.dataplane import DataPlane, DataPlaneError, NoSuchPort, PortCounters, PortSettings
from openflow_ext.switch.ports import Port, Ports

log = logging.getLogger(__name__)

_GROUPS = {
    wire.PortConfigFlags.ALARM: ("k_pkts", "rtt_us", "cookie", "priority"),
    wire.PortConfigFlags.WINDOW: ("capacity_bps", "common_rtt_us", "least_window_bytes"),
    wire.PortConfigFlags.MARK: ("mark_mode", "mark_min_pkts", "mark_max_pkts"),
}
_LARGEST_WINDOW_BYTES = 0xFFFF << 14


def answer(message: bytes, ports: Ports, dataplane: DataPlane, session: str) -> bytes:
    """Carry out one extension message of a controller; the reply or the error that goes back.

    ``session`` is its name in the log.
    """
    version, _, _, xid = of.HEADER.unpack_from(message)
    try:
        match wire.decode_message(message):
            case wire.PortConfig() as config:
                return wire.encode_message(_configure(config, ports), version, xid)
            case wire.PortCountersRequest(port_no):
                records = [_record(port, dataplane) for port in _asked(port_no, ports)]
                return b"".join(wire.encode_message(r, version, xid) for r in _replies(records))
            case other:
                raise wire.UnknownType("exp_type", f"{type(other).__name__} is no request")
    except wire.UnknownType as error:
        log.warning("%s: extension message refused: %s", session, error)
        return of.error(message, of.OFPET_BAD_REQUEST, of.OFPBRC_BAD_EXP_TYPE)
    except wire.WireError as error:
        log.warning("%s: extension message refused: %s", session, error)
        return _error(message, error.code)
    except NoSuchPort as error:
        log.warning("%s: extension message refused: %s", session, error)
        return _error(message, wire.ErrorCode.BAD_PORT)
    except DataPlaneError as error:
        log.warning("%s: extension message refused: %s", session, error)
        return _error(message, wire.ErrorCode.NO_DATAPLANE)


def _error(request: bytes, code: wire.ErrorCode) -> bytes:
    version, _, _, xid = of.HEADER.unpack_from(request)
    refusal = wire.ExperimenterError(code, request[: of.ERROR_DATA_SIZE])
    return wire.encode_message(refusal, version, xid)


def _configure(config: wire.PortConfig, ports: Ports) -> wire.PortConfigReply:
    """Change the groups that the flags name; answer with all that is in force then."""
    if not config.flags & wire.PortConfigFlags.READ:
        names = [name for group, fields in _GROUPS.items() if config.flags & group for name in fields]
        if names:
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
    if config.flags & flags.WINDOW and config.least_window_bytes > _LARGEST_WINDOW_BYTES:
        raise wire.BadValue("port_config.least_window_bytes", f"is over {_LARGEST_WINDOW_BYTES}")
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
    return wire.PortCountersRecord(port_no=port.link.ofport, flags=flags, **_plain(counters))


def _plain(counters: PortCounters) -> dict[str, int]:
    return {name: getattr(counters, name) for name in counters.__slots__ if name != "alarm_up"}


def _replies(records: list[wire.PortCountersRecord]) -> Iterator[wire.PortCountersReply]:
    step = wire.PORT_COUNTERS_MAX
    for at in range(0, len(records) or 1, step):
        yield wire.PortCountersReply(tuple(records[at : at + step]), more=at + step < len(records))
