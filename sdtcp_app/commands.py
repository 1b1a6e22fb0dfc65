"""Commands of a person to SDTCP, from the database's table of commands.

| kind | arguments |
|---|---|
| release | flow |
| protect | flow, on (default true; false ends the protection) |
| punish | flow, window_bytes (default one MSS) |
| policy | dpid, port_no, policy (default: the configured policy) |

``flow`` is an id, or a 5-tuple such as ``10.0.0.1:1000>10.0.0.2:80``. ``dpid`` has 16 hexadecimal digits.
Protection and the policy of a port last until the controller ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from flowdb.flow import FiveTuple, Flow, PortKey
from flowdb.index import FlowIndex, Rank
from sdtcp_app.core import Sdtcp
from sdtcp_app.core_types import Decision, Punish
from weir_base.window import LARGEST_WINDOW_BYTES

_NO_PATH = "its path is unknown; try again when the page of the flow shows a path"
_UNREACHABLE = "no switch on its path is connected and runs an agent; start one there: weir switch"
_OUTSIDE = "no packet is changed for this command; see mode, act_at, act_for and protect in [sdtcp]"


class CommandRefused(Exception):
    """A command cannot be carried out; the message gives the reason."""


class _Command(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Release(_Command):
    """End the clamps of a flow, named by its id or its 5-tuple."""

    kind: Literal["release"]
    flow: int | str


class Protect(_Command):
    """Never punish a flow, in either direction. ``on`` false ends that."""

    kind: Literal["protect"]
    flow: int | str
    on: bool = True


class PunishByHand(_Command):
    """Punish a flow with this window, whatever its rank is."""

    kind: Literal["punish"]
    flow: int | str
    window_bytes: int = Field(default=1, ge=1, le=LARGEST_WINDOW_BYTES)


class PortPolicy(_Command):
    """Use a policy at one port. None: the configured one."""

    kind: Literal["policy"]
    dpid: str = Field(pattern=r"^[0-9a-f]{16}$")
    port_no: int = Field(ge=1, le=0xFFFF_FFFF)
    policy: str | None = None


Command: TypeAlias = Annotated[Release | Protect | PunishByHand | PortPolicy, Field(discriminator="kind")]
_COMMAND: TypeAdapter[Command] = TypeAdapter(Command)


@dataclass(frozen=True, slots=True)
class Obeyed:
    """The result of a command: a text for the person, and the decisions to carry out."""

    outcome: str
    decisions: list[Decision] = field(default_factory=list)


class CommandHandler:
    """Turns commands into decisions. ``rank_for`` gives the rank of a named policy; it raises ValueError."""

    def __init__(self, core: Sdtcp, index: FlowIndex, rank_for: Callable[[str], Rank]) -> None:
        self.protected: set[FiveTuple] = set()
        self.policies: dict[PortKey, str] = {}
        self._core = core
        self._index = index
        self._rank_for = rank_for

    def obey(self, kind: str, arguments: Mapping[str, object], now_ns: int) -> Obeyed:
        """Raises CommandRefused."""
        match _parse(kind, arguments):
            case Release(flow=name):
                flow = self._flow(name)
                if not (decisions := self._core.release(flow.id)):
                    raise CommandRefused(f"{flow.key} is not slowed down")
                return Obeyed(f"{flow.key} released", decisions)
            case Protect(flow=name, on=on):
                return self._protect(self._flow(name), on)
            case PunishByHand(flow=name, window_bytes=window_bytes):
                return self._punish(self._flow(name), window_bytes, now_ns)
            case PortPolicy(dpid=dpid, port_no=port_no, policy=policy):
                return self._policy(PortKey(int(dpid, 16), port_no), policy)

    def rank_anew(self) -> None:
        """Rebuild the ranks of ports with a policy of their own, after the settings changed."""
        for port, policy in self.policies.items():
            self._index.rank_port_by(port, self._rank_for(policy))

    def _punish(self, flow: Flow, window_bytes: int, now_ns: int) -> Obeyed:
        if not self._core.reaches(flow):
            raise CommandRefused(f"{flow.key} is not slowed down: {_UNREACHABLE if flow.path else _NO_PATH}")
        decisions = self._core.punish(flow, window_bytes, now_ns)
        if any(isinstance(one, Punish) and one.observed for one in decisions):
            return Obeyed(f"{flow.key} is only observed: {_OUTSIDE}", decisions)
        return Obeyed(f"{flow.key} slowed down", decisions)

    def _protect(self, flow: Flow, on: bool) -> Obeyed:
        if on:
            self.protected.add(flow.key)
        else:
            self.protected -= {flow.key, flow.key.reverse}
        pair = [flow, *(one for one in self._index.flows() if one.key == flow.key.reverse)]
        for one in pair:
            self._index.rank_flow(one.id)
        decisions = [lift for one in pair for lift in self._core.release(one.id)] if on else []
        return Obeyed(f"{flow.key} {'protected' if on else 'no longer protected'}", decisions)

    def _policy(self, port: PortKey, policy: str | None) -> Obeyed:
        if policy is None:
            self.policies.pop(port, None)
            self._index.rank_port_by(port, None)
            return Obeyed(f"port {port} has the configured policy")
        try:
            self._index.rank_port_by(port, self._rank_for(policy))
        except ValueError as error:
            raise CommandRefused(str(error)) from error
        self.policies[port] = policy
        return Obeyed(f"port {port} has the policy {policy}")

    def _flow(self, name: int | str) -> Flow:
        try:
            if isinstance(name, int) or name.isdecimal():
                found = self._index.get(int(name))
            else:
                key = FiveTuple.parse(name)
                found = next((flow for flow in self._index.flows() if flow.key == key), None)
        except ValueError as error:
            raise CommandRefused(str(error)) from error
        if found is None:
            raise CommandRefused(f"no flow {name} is open")
        return found


def _parse(kind: str, arguments: Mapping[str, object]) -> Command:
    try:
        return _COMMAND.validate_python({**arguments, "kind": kind})
    except ValidationError as error:
        raise CommandRefused(
            f"{kind}: {'; '.join(map(_problem, error.errors(include_url=False)))}"
        ) from error


def _problem(problem: Any) -> str:
    place = ".".join(str(part) for part in problem["loc"][1:])
    return f"{place}: {problem['msg']}" if place else str(problem["msg"])
