"""Types of settings that the sections of several apps share."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from app_base.flow_rules import FlowRule, Network
from app_base.scope import Scope, port_key
from weir_base.settings import Section

MetricsAddress = Annotated[str, Field(pattern=r"^(\[[0-9A-Fa-f:]+\]|[^:\[\]]+):\d{1,5}$")]
"""``HOST:PORT`` on which Prometheus may ask. The base class of apps serves a setting named ``metrics``."""
TcpPort = Annotated[int, Field(ge=0, le=0xFFFF)]


def _place(text: str) -> str:
    """Raises ValueError unless the text names a switch or a port."""
    port_key(text if ":" in text else f"{text}:1")
    return text


def _port(text: str) -> str:
    """Raises ValueError unless the text names a port."""
    port_key(text)
    return text


PortName = Annotated[str, AfterValidator(_port)]
"""A switch port as logs show it: the datapath id in hexadecimal digits, a colon, the port's number."""
PlaceName = Annotated[str, AfterValidator(_place)]
"""A switch by its datapath id in hexadecimal digits, or one of its ports as ``PortName``."""


class RuleSettings(Section):
    """Flows by the 5-tuple of their data. A part that is not given matches anything."""

    src: Network | None = Field(None, description="network of the sender")
    dst: Network | None = Field(None, description="network of the receiver")
    src_port: TcpPort | None = Field(None, description="TCP port of the sender")
    dst_port: TcpPort | None = Field(None, description="TCP port of the receiver")

    @model_validator(mode="after")
    def _matches_something(self) -> RuleSettings:
        if not self.model_fields_set:
            raise ValueError("the rule matches every flow; give src, dst, src_port or dst_port")
        if self.src and self.dst and self.src.version != self.dst.version:
            raise ValueError(f"{self.src} and {self.dst} are not of the same IP version")
        return self

    @property
    def rule(self) -> FlowRule:
        """The rule as a plain value."""
        return FlowRule(self.src, self.dst, self.src_port, self.dst_port)


class ScopeSettings(Section):
    """The part of a controller's section that limits where it acts."""

    act_at: tuple[PlaceName, ...] = Field(
        (),
        description="switches (datapath id in hexadecimal digits) and ports (DPID:PORT, as logs show them) "
        'at which the controller acts. At all others it observes, as with `mode = "observe"`; none: it acts '
        "everywhere",
    )
    act_for: tuple[Network, ...] = Field(
        (),
        description="networks, such as 10.1.0.0/16. The controller acts on flows of which an end is in one "
        "of them, and observes all others; none: it acts on all flows",
    )
    protect: tuple[RuleSettings, ...] = Field(
        (), description="flows that are never slowed, in either direction, whatever the other settings are"
    )

    @property
    def protected(self) -> tuple[FlowRule, ...]:
        """The rules of ``protect`` as plain values."""
        return tuple(rule.rule for rule in self.protect)

    def scope_if(self, acts: bool) -> Scope:
        """The scope; ``acts`` False: the controller only observes."""
        places = [(place, ":" in place) for place in self.act_at]
        return Scope(
            acts,
            frozenset(int(place, 16) for place, is_port in places if not is_port),
            frozenset(port_key(place) for place, is_port in places if is_port),
            self.act_for,
            self.protected,
        )
