"""Schemes: what the lab compares. A scheme is the programs beside the network and the hosts' transports.

The baselines without a controller of their own are listed here. A controller's package declares its own
schemes: each is an entry point of the group `weir.lab_schemes`, whose name is the scheme's name and whose
value is a mapping of plain values with the other fields of Scheme::

    STANDARD = {
        "style": {"label": "SDTCP", "colour": "#0072B2", "line": "--", "marker": "s"},
        "apps": ["fabric_app.app", "sdtcp_app.app"],
        "extended": True,
        "settings": {"sdtcp": {"k_pkts": 40}},
    }
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from mininet_topos.errors import BadExperiment
from mininet_topos.experiments.baselines import BASELINES, Baseline
from mininet_topos.experiments.plot_style import PlotStyle
from mininet_topos.plain_values import from_plain

GROUP = "weir.lab_schemes"
FABRIC = ("fabric_app.app",)
UNKNOWN_COLOUR = "#444444"
FLOWS_FROM = ("lab", "host", "network")
Settings = dict[str, dict[str, object]]
TH_MIN_PKTS, TH_MAX_PKTS = 1, 15
"""The thresholds of DCUDP's marks (Ye, Mhamdi and Hamdi, CloudNet 2014, sections IV.A and V.A)."""


@dataclass(frozen=True, slots=True)
class Scheme:
    """``apps`` run under ryu-manager. If ``extended``, the agent stands between them and the bridges.

    ``settings``: sections of the configuration file that the programs get. ``transports``: names of
    baselines, which the hosts take in turn; if there is none, hosts use the experiment's congestion control.
    ``mark_pkts``: queue length above which the switch marks packets; 0: the experiment's.
    ``mark_all_pkts``: queue length from which on it marks all; between the two a share that rises linearly.
    0: it marks all above `mark_pkts`.
    ``min_rto_ms``, ``initial_window``, ``quick_ack``: of every host (network/routes.py).
    ``window_bytes``: the largest window that a host advertises, in whole segments; 0: the kernel's.
    ``sized_window``: `window_bytes` is what the experiment's worst case allows.
    ``receiver``: the command of `weir transports` by which receiving hosts choose windows; empty: none.
    ``flows_from``: who gives n to senders with Adaptive Pacing: "lab", which states it; "host", which counts
    its own connections; "network", by `weir transports follow`. Raises BadExperiment for another word.
    """

    name: str
    style: PlotStyle
    apps: tuple[str, ...] = FABRIC
    extended: bool = False
    settings: Settings = field(default_factory=dict)
    transports: tuple[str, ...] = ()
    mark_pkts: int = 0
    mark_all_pkts: int = 0
    min_rto_ms: int = 0
    initial_window: int = 0
    quick_ack: bool = False
    window_bytes: int = 0
    sized_window: bool = False
    receiver: str = ""
    flows_from: str = FLOWS_FROM[0]

    def __post_init__(self) -> None:
        if self.flows_from not in FLOWS_FROM:
            known = ", ".join(FLOWS_FROM)
            raise BadExperiment(f"scheme {self.name}: flows_from is {self.flows_from!r}; want one of {known}")

    @property
    def marked(self) -> bool:
        """Whether the switch has to mark packets."""
        return any(BASELINES[name].marked for name in self.transports)

    @property
    def is_tcp(self) -> bool:
        """Whether all hosts use TCP."""
        return all(BASELINES[name].is_tcp for name in self.transports)

    @property
    def paced(self) -> bool:
        """Whether senders have to know the bottleneck."""
        return any(BASELINES[name].paced for name in self.transports)

    @property
    def route(self) -> dict[str, int]:
        """The settings of each host's route that the scheme fixes."""
        return {name: getattr(self, name) for name in ("min_rto_ms", "initial_window", "quick_ack")}


def _of_baseline(name: str, baseline: Baseline) -> Scheme:
    """Return the scheme whose hosts all use one baseline; only the extended switch can mark."""
    return Scheme(name, baseline.style, extended=baseline.marked, transports=(baseline.name,))


_WITHOUT_CONTROLLER = (
    Scheme("plain", BASELINES["reno"].style),
    _of_baseline("cubic", BASELINES["cubic"]),
    _of_baseline("bbr", BASELINES["bbr"]),
    Scheme("rto5", PlotStyle("TCP, RTOmin 5 ms", "#117733", (0, (1, 1)), "d"), min_rto_ms=5),
    Scheme("rto1", PlotStyle("TCP, RTOmin 1 ms", "#44AA99", (0, (1, 1)), "D"), min_rto_ms=1),
    Scheme("iw2", PlotStyle("TCP, initial window 2", "#DDCC77", (0, (1, 1)), "p"), initial_window=2),
    Scheme("static-window", PlotStyle("TCP, sized windows", "#88CCEE", (0, (1, 1)), "h"), sized_window=True),
    Scheme("ictcp", PlotStyle("ICTCP", "#999933", (0, (1, 1)), "8"), receiver="ictcp"),
    _of_baseline("ecn", BASELINES["ecn-tcp"]),
    *(
        _of_baseline(name, BASELINES[name])
        for name in (
            *("dctcp", "dctcp-kernel", "d2tcp", "l2dct", "dctcp-plus"),
            *("ap-reno", "ap-dctcp", "ap-d2tcp", "ap-l2dct"),
        )
    ),
    *(
        replace(
            _of_baseline(f"dctcp-k{pkts}", BASELINES["dctcp"]),
            style=PlotStyle(f"DCTCP, K {pkts}", colour, (0, (5, 1)), marker),
            mark_pkts=pkts,
        )
        for pkts, colour, marker in ((10, "#661100", "1"), (20, "#6699CC", "2"), (65, "#CC6677", "3"))
    ),
    replace(
        _of_baseline("ap-reno-host", BASELINES["ap-reno"]),
        style=PlotStyle("TCP, AP, n of the host", "#C49C94", (0, (2, 1)), "v"),
        flows_from="host",
    ),
    Scheme(
        "reno+dctcp",
        PlotStyle("TCP+DCTCP", "#56B4E9", (0, (3, 1, 1, 1)), "X"),
        extended=True,
        transports=("reno", "dctcp"),
    ),
    _of_baseline("udt", BASELINES["udt"]),
    *(
        replace(
            _of_baseline("dcudp", BASELINES["dcudp"]),
            name=name,
            style=PlotStyle(label, colour, line, marker),
            transports=transports,
            mark_pkts=TH_MIN_PKTS,
            mark_all_pkts=TH_MAX_PKTS,
        )
        for name, label, colour, line, marker, transports in (
            ("dcudp", "DCUDP", "#1F77B4", "-", "*", ("dcudp",)),
            ("reno+dcudp", "TCP+DCUDP", "#17BECF", "--", "*", ("reno", "dcudp")),
            ("ecn+dcudp", "ECN-TCP+DCUDP", "#2F4B7C", "--", "8", ("ecn-tcp", "dcudp")),
            ("dctcp+dcudp", "DCTCP+DCUDP", "#9EDAE5", "--", "h", ("dctcp", "dcudp")),
        )
    ),
)


@cache
def schemes() -> Mapping[str, Scheme]:
    """Return every scheme by its name: first the baselines' schemes, then the schemes of installed packages.

    Raises BadExperiment if a declaration cannot be used.
    """
    found = {scheme.name: scheme for scheme in _WITHOUT_CONTROLLER}
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        if point.name in found:
            raise BadExperiment(f"two packages declare the scheme {point.name}: uninstall or rename one")
        found[point.name] = _declared(point)
    return found


def _declared(point: EntryPoint) -> Scheme:
    where = f"scheme {point.name} ({point.value})"
    try:
        values: Any = point.load()
    except Exception as error:  # the module of another package may fail in any way
        raise BadExperiment(f"{where} cannot be loaded: {error}") from error
    if not isinstance(values, Mapping) or "style" not in values:
        raise BadExperiment(f"{where}: want a mapping with the key 'style'")
    lists = {key: tuple(values[key]) for key in ("apps", "transports") if key in values}
    style = from_plain(PlotStyle, values["style"], f"{where}, style")
    scheme = from_plain(Scheme, {**values, **lists, "name": point.name, "style": style}, where)
    if unknown := set(scheme.transports) - set(BASELINES):
        raise BadExperiment(f"{where}: no baseline is called {unknown.pop()}: use {', '.join(BASELINES)}")
    return scheme


def find(name: str) -> Scheme | None:
    """Return the scheme of a name, or of a name with a tag; None if there is none.

    `plain@2` is the scheme `plain` under another name, so that a scheme can be compared with itself.
    """
    own, _, tag = name.partition("@")
    scheme = schemes().get(own)
    if scheme is None or own == name:
        return scheme
    if not re.fullmatch("[a-z0-9]{1,15}", tag):
        return None
    style = replace(scheme.style, label=f"{scheme.style.label} @{tag}", line=":", marker="x")
    return replace(scheme, name=name, style=style)


def scheme_of(name: str) -> Scheme:
    """Return the scheme of a name. Raises BadExperiment."""
    scheme = find(name)
    if scheme is None:
        raise BadExperiment(f"no scheme is called {name!r}: use one of {', '.join(schemes())}")
    return scheme


def style_of(name: str) -> PlotStyle:
    """Return the style of a scheme; of one that is no longer installed, its name in grey."""
    scheme = find(name)
    return scheme.style if scheme else PlotStyle(name, UNKNOWN_COLOUR)


def to_toml(settings: Settings) -> str:
    """Return settings as TOML: a table for each section. Values are strings, numbers or booleans."""
    lines = []
    for section, values in settings.items():
        lines.append(f"[{section}]")
        lines += [f"{name} = {_toml_value(value)}" for name, value in values.items()]
        lines.append("")
    return "\n".join(lines)


def _toml_value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    text = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
