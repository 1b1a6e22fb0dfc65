"""SDTCP's schemes in the lab (entry points of the group `weir.lab_schemes`): plain values, no imports."""

from __future__ import annotations

STANDARD = {
    "style": {"label": "SDTCP", "colour": "#0072B2", "line": "--", "marker": "s"},
    "apps": ["fabric_app.app", "sdtcp_app.app"],
    "extended": True,
    # An RTT below the one that a full queue causes keeps clamped windows small. A much lower value makes the
    # switch raise so many alarms that Ryu, on the CPUs of the network, cannot answer them in time.
    "settings": {"sdtcp": {"rtt_us": 2000, "policy": "longest-lived"}},
}
