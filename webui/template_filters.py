"""Jinja filters that write values on pages: short, with units; None as a dash."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from flask import Flask
from markupsafe import Markup

from flowdb.flow import NON_TCP_PERCENT, NS_PER_S
from webui import navigation
from webui.command_requests import POLICIES
from webui.network_map import level
from webui.queries.names import end, flow_name, switch_name
from webui.views import Port
from weir_base.port_counters import PORT_COUNTERS, PortCounter

NONE = "\u2013"
_WRITTEN_AS_1000 = 999.5
"""From here on, three digits are not enough."""
_PREFIXES = ("", "k", "M", "G", "T", "P")


def count(value: int | None) -> str:
    """A number with thin spaces between thousands."""
    return NONE if value is None else f"{value:,}".replace(",", "\u202f")


def _short(value: float) -> str:
    """A number with three digits. From 1000 on ``.3g`` would write an exponent."""
    return f"{value:.3g}" if abs(value) < _WRITTEN_AS_1000 else f"{value:.0f}"


def scaled(value: float | None, unit: str) -> str:
    """A value with a decimal prefix: 1.25 Gbit/s."""
    if value is None:
        return NONE
    size = float(value)
    for prefix in _PREFIXES:
        if abs(size) < _WRITTEN_AS_1000 or prefix == _PREFIXES[-1]:
            break
        size /= 1000
    return f"{_short(size)}\u00a0{prefix}{unit}"


def rate(value: int | None) -> str:
    """A rate in bit/s, with a decimal prefix."""
    return scaled(value, "bit/s")


def size(value: int | None) -> str:
    """A number of bytes, with a decimal prefix."""
    return scaled(value, "B")


def of_counter(value: int, counter: PortCounter) -> str:
    """A port counter with its unit."""
    write = {"bytes": size, "bit/s": rate}.get(counter.unit)
    return write(value) if write else f"{count(value)}\u00a0{counter.unit}"


def span(ns: int | None) -> str:
    """A duration."""
    if ns is None:
        return NONE
    for unit_ns, unit in ((1_000, "µs"), (1_000_000, "ms")):
        if abs(ns) < _WRITTEN_AS_1000 * unit_ns:
            return f"{_short(ns / unit_ns)}\u00a0{unit}"
    if abs(ns) < 120 * NS_PER_S:
        return f"{_short(ns / NS_PER_S)}\u00a0s"
    minutes, hours = ns / NS_PER_S / 60, ns / NS_PER_S / 3600
    return f"{minutes:.0f}\u00a0min" if minutes < 120 else f"{hours:.1f}\u00a0h"


def seconds(value: float | None) -> str:
    """A duration in seconds, in the unit that fits it."""
    return span(None if value is None else round(value * NS_PER_S))


def moment(ns: int | None, form: str = "time") -> Markup | str:
    """A time in UTC by the controller's clock. The browser converts it to the viewer's time zone.

    ``form``: "time" (with the date if that is not today), "full" (always with the date) or "ago".
    """
    if ns is None:
        return NONE
    try:
        at = datetime.fromtimestamp(ns // NS_PER_S, UTC)
    except (ValueError, OverflowError, OSError):
        return NONE
    millis = ns % NS_PER_S // 1_000_000
    iso = f"{at:%Y-%m-%dT%H:%M:%S}.{millis:03d}Z"
    exact = f"{at:%Y-%m-%d %H:%M:%S}.{ns % NS_PER_S:09d} UTC, by the controller's clock"
    is_of_today = at.date() == datetime.now(UTC).date()
    shown = f"{at:%H:%M:%S}.{millis:03d}" if form == "time" and is_of_today else f"{at:%Y-%m-%d %H:%M:%S}"
    return Markup('<time datetime="{}" data-form="{}" title="{}">{}</time>').format(iso, form, exact, shown)


def started(iso: str) -> Markup | str:
    """The time in a result folder's metadata. Text that is not a time is returned unchanged."""
    try:
        at = datetime.fromisoformat(iso)
    except ValueError:
        return iso
    return moment(int(at.timestamp()) * NS_PER_S, "full")


def as_json(value: object) -> str:
    """JSON for a person to read: nothing is escaped for a script."""
    return json.dumps(value, ensure_ascii=False)


LEVELS = ("empty", "short", "filling", "long", "alarm")


def queue_level(port: Port) -> str:
    """A word for the level of a port's queue."""
    return LEVELS[level(port)]


def install(app: Flask) -> None:
    """Add the filters to the application's templates."""
    app.jinja_env.filters.update(
        count=count,
        rate=rate,
        size=size,
        span=span,
        seconds=seconds,
        moment=moment,
        started=started,
        as_json=as_json,
        switch=switch_name,
        level=queue_level,
        of_counter=of_counter,
    )
    app.jinja_env.globals.update(
        NON_TCP_PERCENT=NON_TCP_PERCENT,
        PORT_COUNTERS=PORT_COUNTERS,
        end=end,
        flow_name=flow_name,
        LEVELS=LEVELS,
        policies=POLICIES,
        navigation=navigation.entries,
    )
    app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True
