"""SCCP's schemes in the lab (entry points of the group `weir.lab_schemes`): plain values, no imports."""

from __future__ import annotations

_APPS = ["fabric_app.app", "sccp_app.app"]

STANDARD = {
    "style": {"label": "SCCP", "colour": "#009E73", "line": "-.", "marker": "^"},
    "apps": _APPS,
    "extended": True,
    "settings": {"sccp": {"common_rtt": "fixed"}},
}
# Beside SCCP, hosts that wait at most 5 ms before they send again.
WITH_RTO5 = STANDARD | {
    "style": {"label": "SCCP, RTOmin 5 ms", "colour": "#228833", "line": "-.", "marker": "d"},
    "min_rto_ms": 5,
}
AUTO = {
    "style": {"label": "SCCP, corrected allowance", "colour": "#882255", "line": "-.", "marker": "P"},
    "apps": _APPS,
    "extended": True,
    "settings": {"sccp": {"common_rtt": "auto"}},
}
BY_HOST = AUTO | {
    "style": {"label": "SCCP, shares by host", "colour": "#CC3355", "line": "-.", "marker": "X"},
    "settings": {"sccp": {"common_rtt": "auto", "share_by": "host"}},
}
MEASURED_RTT = {
    "style": {"label": "SCCP, measured RTT", "colour": "#000000", "line": "-.", "marker": "v"},
    "apps": _APPS,
    "extended": True,
    "settings": {"sccp": {"common_rtt": "measured"}},
}
# As published: an integer N_i, equation (1) with a fixed common RTT, a least window of one MSS, nothing else.
PAPER = {
    "style": {"label": "SCCP as published", "colour": "#AA3377", "line": "-.", "marker": "<"},
    "apps": _APPS,
    "extended": True,
    "settings": {
        "switch": {"count": "simple"},
        "sccp": {
            "common_rtt": "fixed",
            "common_rtt_us": 600,
            "fits_segments": False,
            "shares_among_active": False,
            "remembers_crowd": False,
            "grants_two_segments": False,
            "counts_resets": False,
            "yields_to_long_rtt": False,
        },
    },
}


def _without(addition: str, label: str, colour: str, marker: str) -> dict[str, object]:
    """The default of SCCP without one of Weir's additions."""
    return {
        "style": {"label": f"SCCP without {label}", "colour": colour, "line": ":", "marker": marker},
        "apps": _APPS,
        "extended": True,
        "settings": {"sccp": {"common_rtt": "auto", addition: False}},
    }


NO_FIT = _without("fits_segments", "segment fitting", "#E69F66", "1")
NO_SCALE = _without("refines_scale", "a finer scale", "#66A61E", "2")
NO_PSH = _without("sets_psh", "PSH", "#7570B3", "3")
NO_ACTIVE = _without("shares_among_active", "active senders", "#A6761D", "4")
NO_CROWD = _without("remembers_crowd", "the crowd", "#1B9E77", "+")

# The same programs and entries, and a switch that changes no packet: what `weir off` leaves.
AUTO_OFF = AUTO | {
    "style": {"label": "SCCP, off", "colour": "#DDAACC", "line": ":", "marker": "P"},
    "settings": {"sccp": {"common_rtt": "auto"}, "switch": {"mode": "observe"}},
}

# Adaptive Pacing on the hosts, with n of the switch: under SCCP, and with SCCP that only counts.
WITH_PACING = AUTO | {
    "style": {"label": "SCCP, AP", "colour": "#5254A3", "line": (0, (2, 1)), "marker": "^"},
    "settings": {"sccp": {"common_rtt": "auto"}, "telemetry": {"sample_s": 0.1}},
    "transports": ["ap-reno"],
    "flows_from": "network",
}
PACING_ALONE = WITH_PACING | {
    "style": {"label": "TCP, AP, n of the switch", "colour": "#9C9EDE", "line": (0, (2, 1)), "marker": "s"},
    "settings": {"sccp": {"common_rtt": "auto", "mode": "observe"}, "telemetry": {"sample_s": 0.1}},
}
