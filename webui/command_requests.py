"""The commands that a request may give to the controllers, and their parameters."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Annotated, Any, Literal

from pydantic import Field, RootModel

from flowdb.commands import Kind
from webui.parameters import Dpid, Id, Parameters, PortNo
from weir_base.window import LARGEST_WINDOW_BYTES

POLICIES = tuple(sorted(entry_points(group="weir.sdtcp_policies").names))
"""The policies of SDTCP that are installed here. A controller refuses the names that it does not know."""

WindowBytes = Annotated[int, Field(ge=1, le=LARGEST_WINDOW_BYTES)]
Policy = Annotated[str, Field(min_length=1, max_length=64, pattern="^[a-z][a-z0-9-]*$")]


class Release(Parameters):
    """Lift a flow's clamp now."""

    kind: Literal["release"]
    flow: Id


class Protect(Parameters):
    """Never punish a flow, and release it if it is punished. ``on`` false ends the protection."""

    kind: Literal["protect"]
    flow: Id
    on: bool = True


class Punish(Parameters):
    """Clamp a flow to a window, by default one MSS."""

    kind: Literal["punish"]
    flow: Id
    window_bytes: WindowBytes | None = None


class SetPolicy(Parameters):
    """Set the policy that ranks a port's flows; None: the configured policy."""

    kind: Literal["policy"]
    dpid: Dpid
    port_no: PortNo
    policy: Policy | None = None


class CommandRequest(
    RootModel[Annotated[Release | Protect | Punish | SetPolicy, Field(discriminator="kind")]]
):
    """A command of any kind."""

    @property
    def kind(self) -> Kind:
        return self.root.kind

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments for the commands table: ``dpid`` in hexadecimal, without defaults."""
        return self.root.model_dump(exclude={"kind"}, exclude_defaults=True)
