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
MEASURED_RTT = {
    "style": {"label": "SCCP, measured RTT", "colour": "#000000", "line": "-.", "marker": "v"},
    "apps": _APPS,
    "extended": True,
    "settings": {"sccp": {"common_rtt": "measured"}},
}
