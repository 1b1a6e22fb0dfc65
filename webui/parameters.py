"""The parameters of requests, which are checked before anything else happens.

BadParameters   a parameter is unknown, given twice or incorrect; the message names it and the remedy
"""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from werkzeug.datastructures import MultiDict

from webui.queries.flows import FlowFilter, Sort, State
from webui.queries.paging import BadCursor, Cursor

MAX_ROWS = 500
MAX_DESTINATIONS = 64
_END = re.compile(r"\[(?P<v6>[^\[\]]+)\](?::(?P<v6_port>\d+))?|(?P<v4>[^:]+)(?::(?P<v4_port>\d+))?")


class BadParameters(ValueError):
    """The request's parameters cannot be used."""


def _address(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return str(ipaddress.ip_address(value.strip()))
    except ValueError as error:
        raise ValueError(f"{value!r} is not an IP address, such as 10.0.0.1") from error


def _dpid(value: object) -> object:
    """A datapath id as people write it: s1, 1 or 16 hexadecimal digits."""
    if not isinstance(value, str):
        return value
    text = value.strip().lower()
    if re.fullmatch(r"s\d{1,5}", text):
        return f"{int(text[1:]):016x}"
    return text.rjust(16, "0") if re.fullmatch(r"[0-9a-f]{1,16}", text) else text


Address = Annotated[str, BeforeValidator(_address), Field(max_length=45)]
Dpid = Annotated[
    str, BeforeValidator(_dpid), Field(pattern="^[0-9a-f]{16}$", description="A datapath id in hexadecimal.")
]
PortNo = Annotated[int, Field(ge=0, le=2**32 - 1)]
TcpPort = Annotated[int, Field(ge=0, le=0xFFFF)]
Id = Annotated[int, Field(ge=1, le=2**53 - 1)]


class Parameters(BaseModel):
    """Base of all parameters: an unknown parameter is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class NoParameters(Parameters):
    """A request without parameters."""


class PageParameters(Parameters):
    """One page of a list. ``cursor``: from the answer before."""

    limit: int = Field(default=50, ge=1, le=MAX_ROWS)
    cursor: str | None = Field(default=None, max_length=64)

    @property
    def place(self) -> Cursor | None:
        """The cursor. Raises BadParameters."""
        try:
            return None if self.cursor is None else Cursor.parse(self.cursor)
        except BadCursor as error:
            raise BadParameters(str(error)) from error


class FlowParameters(PageParameters):
    """A choice of flows. ``q``: an address of either end, with or without a port; or two of them with >."""

    q: str | None = Field(default=None, max_length=120, description="ADDRESS[:PORT] or FROM > TO.")
    src: Address | None = None
    dst: Address | None = None
    src_port: TcpPort | None = None
    dst_port: TcpPort | None = None
    switch: Dpid | None = None
    switch_port: PortNo | None = None
    state: State = "any"
    policy: str | None = Field(default=None, max_length=64, pattern=r"^[^\x00]*$")
    sort: Sort = "newest"

    @property
    def filter(self) -> FlowFilter:
        """The choice for the query. Raises BadParameters."""
        if self.switch_port is not None and self.switch is None:
            raise BadParameters("switch_port: give switch too, because a port number belongs to a switch")
        values = self.model_dump(exclude={"q", "switch", "limit", "cursor"})
        searched = {name: value for name, value in _search(self.q or "").items() if value is not None}
        dpid = None if self.switch is None else int(self.switch, 16)
        return FlowFilter(**(values | searched), dpid=dpid)


class PortParameters(PageParameters):
    """Events of one port, or of all ports."""

    dpid: Dpid | None = None
    port_no: PortNo | None = None


class BottleneckParameters(Parameters):
    """Destinations, separated by commas."""

    to: str = Field(
        min_length=2, max_length=46 * MAX_DESTINATIONS, description="IP addresses, separated by commas."
    )

    @property
    def addresses(self) -> list[str]:
        """The addresses, each once and in its usual form. Raises BadParameters."""
        try:
            found = list(dict.fromkeys(str(ipaddress.ip_address(one.strip())) for one in self.to.split(",")))
        except ValueError as error:
            raise BadParameters(f"to: {error}; give addresses such as 10.0.0.1,10.0.0.2") from error
        if len(found) > MAX_DESTINATIONS:
            raise BadParameters(f"to: {len(found)} addresses; give at most {MAX_DESTINATIONS} in a request")
        return found


class ClampParameters(PortParameters):
    standing: bool = Field(default=False, description="Only clamps that are not lifted.")


class SpanParameters(Parameters):
    """An interval of ``span_s`` seconds that ends now, or at ``until_ns``."""

    span_s: int = Field(default=3600, ge=10, le=7 * 86_400)
    until_ns: int | None = Field(default=None, ge=0, le=2**62)
    points: int = Field(default=600, ge=10, le=2000)


Model = TypeVar("Model", bound=BaseModel)


def parse(model: type[Model], given: MultiDict[str, str]) -> Model:
    """The parameters of a request. Empty ones, which forms send, are ignored. Raises BadParameters."""
    twice = [name for name, values in given.lists() if len(values) > 1]
    if twice:
        raise BadParameters(f"{twice[0][:64]}: given twice")
    return check(model, {name: value for name, value in given.items() if value.strip()})


def check(model: type[Model], values: Any) -> Model:
    """The values of a form, a query or a body as a model. Raises BadParameters."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise BadParameters(
            "; ".join(_problem(model, one) for one in error.errors(include_url=False))
        ) from error


def _problem(model: type[BaseModel], problem: Any) -> str:
    name = ".".join(str(part)[:64] for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return f"{name}: unknown; the parameters are: {', '.join(model.model_fields) or 'none'}"
    return f"{name or 'request'}: {problem['msg'].removeprefix('Value error, ')}"


def _search(text: str) -> dict[str, Any]:
    """The meaning of a search line."""
    parts = [part.strip() for part in re.split(r">|→", text) if part.strip()]
    if not parts:
        return {}
    if len(parts) == 1:
        address, port = _end(parts[0])
        return {"address": address, "port": port}
    if len(parts) == 2:
        (src, src_port), (dst, dst_port) = map(_end, parts)
        return {"src": src, "src_port": src_port, "dst": dst, "dst_port": dst_port}
    raise BadParameters("q: more than two ends; write ADDRESS[:PORT] or FROM > TO")


def _end(text: str) -> tuple[str | None, int | None]:
    """One end of a flow as people write it: an address, a port, or both."""
    try:
        if text.lstrip(":").isdecimal() and text.isascii():
            return None, _port(text.lstrip(":"))
        if text.count(":") > 1 and not text.startswith("["):
            return str(ipaddress.ip_address(text)), None
        found = _END.fullmatch(text)
        if found is None:
            raise ValueError
        port = found["v6_port"] or found["v4_port"]
        return str(ipaddress.ip_address(found["v6"] or found["v4"])), _port(port) if port else None
    except ValueError as error:
        raise BadParameters(
            f"q: {text!r} is not an end of a flow; write 10.0.0.1, 10.0.0.1:5001, :5001 or [fd00::1]:5001"
        ) from error


def _port(text: str) -> int:
    if len(text) > 5 or int(text) > 0xFFFF:
        raise ValueError(text)
    return int(text)
