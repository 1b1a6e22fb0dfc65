"""The schemes that a lab compares: which programs run beside the network, what the hosts speak."""

from __future__ import annotations

from dataclasses import dataclass, field

from mininet_topos.baselines import BASELINES

FABRIC = ("fabric_app.app",)
Settings = dict[str, dict[str, object]]


@dataclass(frozen=True, slots=True)
class Scheme:
    """``apps`` run under ryu-manager; ``extended``: the agent stands between them and the bridge.

    ``settings`` are sections of the configuration file that the programs get. ``transports``: baselines.py's,
    which hosts take in turn; none: the experiment's congestion control.
    """

    name: str
    apps: tuple[str, ...]
    extended: bool
    settings: Settings = field(default_factory=dict)
    transports: tuple[str, ...] = ()

    @property
    def marked(self) -> bool:
        """Whether the switch has to mark."""
        return any(BASELINES[name].marked for name in self.transports)


SCHEMES = {
    scheme.name: scheme
    for scheme in (
        Scheme("plain", FABRIC, extended=False),
        Scheme("cubic", FABRIC, extended=False, transports=("cubic",)),
        Scheme("bbr", FABRIC, extended=False, transports=("bbr",)),
        Scheme("ecn", FABRIC, extended=True, transports=("ecn-tcp",)),
        Scheme("dctcp", FABRIC, extended=True, transports=("dctcp",)),
        Scheme("reno+dctcp", FABRIC, extended=True, transports=("reno", "dctcp")),
        # With 150 KB ahead of it at 100 Mbit/s a round trip takes 12 ms. 2 ms, for a start of few packets,
        # mean 1000 alarms a second, which Ryu answers beside the network on the same two cores.
        Scheme(
            "sdtcp",
            (*FABRIC, "sdtcp_app.app"),
            extended=True,
            settings={"sdtcp": {"rtt_us": 2000, "policy": "longest-lived"}},
        ),
        Scheme("sccp", (*FABRIC, "sccp_app.app"), extended=True),
        Scheme(
            "sccp-measured",
            (*FABRIC, "sccp_app.app"),
            extended=True,
            settings={"sccp": {"common_rtt": "measured"}},
        ),
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
