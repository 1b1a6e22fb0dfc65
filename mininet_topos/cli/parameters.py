"""Types and options that several commands of `weir lab` share."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, ClassVar

import click


class RoleRate(click.ParamType):  # type: ignore[type-arg]  # click 8.5 only
    """The rate of a role's ports, as ROLE=MBPS."""

    name = "role=mbps"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, float]:
        """Return the role and the rate in Mbit/s."""
        role, _, rate_mbps = value.partition("=")
        try:
            return role, float(rate_mbps)
        except ValueError:
            self.fail(f"{value!r}: want ROLE=Mbit/s, e.g. trunk=1000", param, ctx)


class Change(click.ParamType):  # type: ignore[type-arg]  # click 8.5 only
    """A field of an experiment and its value, as KEY=VALUE. The value is TOML, or a word without quotes."""

    name = "key=value"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, Any]:
        """Return the key and the value."""
        key, given, text = value.partition("=")
        key, text = key.strip(), text.strip()
        if not (key and given and text):
            self.fail(f"{value!r}: want KEY=VALUE, e.g. delay_ms=5 or schemes=['plain','sccp']", param, ctx)
        try:
            read = tomllib.loads(f"value = {text}")
        except tomllib.TOMLDecodeError as error:
            if re.fullmatch(r"[A-Za-z][\w+-]*", text):
                return key, text
            self.fail(f"{value!r}: its value is not TOML: {error}", param, ctx)
        if list(read) != ["value"]:
            self.fail(f"{value!r}: want one value", param, ctx)
        return key, read["value"]


class Bytes(click.ParamType):  # type: ignore[type-arg]  # click 8.5 only
    """A number of bytes. 32KB and 1.5MB are decimal: 32,000 and 1,500,000 bytes."""

    name = "bytes"
    units: ClassVar[dict[str, int]] = {"": 1, "B": 1, "KB": 1000, "MB": 1_000_000}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number of bytes."""
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Z]*)", str(value).upper())
        if found is None or found[2] not in self.units:
            self.fail(f"{value!r}: want bytes, e.g. 32000, 32KB or 1.5MB", param, ctx)
        return round(float(found[1]) * self.units[found[2]])


controller_port_option = click.option(
    "--controller-port",
    type=click.IntRange(1, 65535),
    help="TCP port on which the controller listens; by default a free one.",
)
out_option = click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="The result folder to create; by default results/NAME-TIME.",
)
rows_as_json_option = click.option("--json", "as_json", is_flag=True, help="Print the rows of summary.json.")
unpinned_option = click.option(
    "--unpinned", is_flag=True, help="Give no CPU to the switch alone, as on a user's machine."
)
