"""SDTCP's schemes in the lab (entry points of the group `weir.lab_schemes`): plain values, no imports."""

from __future__ import annotations

STANDARD = {
    "style": {"label": "SDTCP", "colour": "#0072B2", "line": "--", "marker": "s"},
    "apps": ["fabric_app.app", "sdtcp_app.app"],
    "extended": True,
    # An RTT below the one that a full queue causes keeps clamped windows small. A much lower value makes the
    # switch raise so many alarms that Ryu, on the CPUs of the network, cannot answer them in time.
    "settings": {"sdtcp": {"rtt_us": 2000, "corrects_allowance": False}},
}
# Beside SDTCP, hosts that wait at most 5 ms before they send again.
WITH_RTO5 = STANDARD | {
    "style": {"label": "SDTCP, RTOmin 5 ms", "colour": "#4477AA", "line": "--", "marker": "d"},
    "min_rto_ms": 5,
}
AUTO = {
    "style": {"label": "SDTCP, corrected allowance", "colour": "#332288", "line": "--", "marker": "X"},
    "apps": ["fabric_app.app", "sdtcp_app.app"],
    "extended": True,
    "settings": {"sdtcp": {"rtt_us": 2000, "corrects_allowance": True}},
}
# Armed entries give long flows a small weight in the division of the corrected allowance (decision 0056).
WITH_SCCP = {
    "style": {"label": "SDTCP and SCCP", "colour": "#AA4499", "line": "-", "marker": "*"},
    "apps": ["fabric_app.app", "sdtcp_app.app", "sccp_app.app"],
    "extended": True,
    "settings": {
        "sdtcp": {"rtt_us": 2000, "mode": "weights", "reflex_ranks": 64},
        "sccp": {"common_rtt": "auto"},
    },
}
# As published (sections III to V): the RTT of its network, alpha, reactive paths, no delayed ACKs. The paper
# states no K: 20 packets is that of DCTCP for 1 Gbit/s, which it cites. It limits no clamp, so the limits are
# the largest.
PAPER = {
    "style": {"label": "SDTCP as published", "colour": "#6A51A3", "line": "--", "marker": "<"},
    "apps": ["fabric_app.app", "sdtcp_app.app"],
    "extended": True,
    "quick_ack": True,
    "settings": {
        "fabric": {"mode": "reactive"},
        "sdtcp": {
            "mode": "alarm",
            "policy": "longest-lived",
            "k_pkts": 20,
            "rtt_us": 30_000,
            "alpha": 5,
            "corrects_allowance": False,
            "standing_s": 0,
            "clamp_limit_s": 3600.0,
            "idle_timeout_s": 10,
            "hard_timeout_s": 65_535,
        },
    },
}
# The same programs and entries, and a switch that changes no packet: what `weir off` leaves.
AUTO_OFF = AUTO | {
    "style": {"label": "SDTCP, off", "colour": "#88BBDD", "line": ":", "marker": "s"},
    "settings": {"sdtcp": {"rtt_us": 2000, "corrects_allowance": True}, "switch": {"mode": "observe"}},
}
