"""The schemes that a lab compares: which programs run beside the network, and with which settings."""

from __future__ import annotations

from dataclasses import dataclass, field

Settings = dict[str, dict[str, object]]


@dataclass(frozen=True, slots=True)
class Scheme:
    """``apps`` run under ryu-manager; ``extended``: the agent stands between them and the bridge.

    ``settings`` are sections of the configuration file that the programs get.
    """

    name: str
    apps: tuple[str, ...]
    extended: bool
    settings: Settings = field(default_factory=dict)


SCHEMES = {
    scheme.name: scheme
    for scheme in (
        Scheme("plain", ("fabric_app.app",), extended=False),
        # With 150 KB ahead of it at 100 Mbit/s a round trip takes 12 ms. 2 ms, for a start of few packets,
        # mean 1000 alarms a second, which Ryu answers beside the network on the same two cores.
        Scheme(
            "sdtcp",
            ("fabric_app.app", "sdtcp_app.app"),
            extended=True,
            settings={"sdtcp": {"rtt_us": 2000, "policy": "longest-lived"}},
        ),
        Scheme("sccp", ("fabric_app.app", "sccp_app.app"), extended=True),
    )
}


def to_toml(settings: Settings) -> str:
    """Settings as TOML: one table for each section; strings, numbers and booleans only."""
    lines = []
    for section, values in settings.items():
        lines.append(f"[{section}]")
        lines += [f"{name} = {_value(value)}" for name, value in values.items()]
        lines.append("")
    return "\n".join(lines)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    text = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
