"""The ``[window_limit]`` section."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network

from pydantic import Field

from app_base.settings import MetricsAddress
from weir_base.settings import Section


class Limit(Section):
    """The largest window, in bytes, that the receivers of a subnet may advertise."""

    subnet: IPv4Network | IPv6Network = Field(description="the receivers")
    window_bytes: int = Field(ge=1, le=0xFFFF << 14, description="their largest window, in bytes")


class WindowLimitSettings(Section):
    """Fixed window limits."""

    limits: tuple[Limit, ...] = Field((), description="the subnets and their limits")
    metrics: MetricsAddress | None = Field(None, description="`HOST:PORT` on which Prometheus may ask")
