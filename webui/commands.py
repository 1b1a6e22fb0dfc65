"""What people may ask the controllers for, and how a request says it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, RootModel

from flowdb.commands import Kind
from webui.args import Args, Dpid, Id, PortNo

POLICIES = ("longest-lived-active", "longest-lived", "largest-volume", "highest-rate", "priority")
"""Those that SDTCP knows; a controller refuses others by itself."""

WindowBytes = Annotated[int, Field(ge=1, le=0xFFFF << 14)]
Policy = Annotated[str, Field(min_length=1, max_length=64, pattern="^[a-z][a-z0-9-]*$")]


class Release(Args):
    """Lift a flow's clamp now."""

    kind: Literal["release"]
    flow: Id


class Protect(Args):
    """Never punish a flow, and release it if it is punished; ``on`` false: protect it no more."""

    kind: Literal["protect"]
    flow: Id
    on: bool = True


class Punish(Args):
    """Hold a flow to a window, by default one MSS."""

    kind: Literal["punish"]
    flow: Id
    window_bytes: WindowBytes | None = None


class SetPolicy(Args):
    """By which policy a port's flows are chosen; none: by the configured one."""

    kind: Literal["policy"]
    dpid: Dpid
    port_no: PortNo
    policy: Policy | None = None


class Asked(RootModel[Annotated[Release | Protect | Punish | SetPolicy, Field(discriminator="kind")]]):
    """A command of any kind."""

    @property
    def kind(self) -> Kind:
        return self.root.kind

    @property
    def arguments(self) -> dict[str, Any]:
        """As the commands table keeps them: ``dpid`` in hexadecimal, what was not given left out."""
        return self.root.model_dump(exclude={"kind"}, exclude_defaults=True)
