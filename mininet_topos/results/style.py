"""How every scheme looks, everywhere: label, colour (Okabe and Ito's colour-blind safe set), line, marker."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Look:
    """A scheme's label, colour, line style and marker."""

    label: str
    colour: str
    line: str | tuple[int, tuple[int, ...]]
    marker: str


LOOKS = {
    "plain": Look("plain TCP", "#D55E00", "-", "o"),
    "cubic": Look("CUBIC", "#F0E442", ":", "v"),
    "bbr": Look("BBR", "#999999", ":", "<"),
    "ecn": Look("ECN-TCP", "#E69F00", ":", "D"),
    "dctcp": Look("DCTCP", "#CC79A7", (0, (5, 1)), "P"),
    "reno+dctcp": Look("TCP+DCTCP", "#56B4E9", (0, (3, 1, 1, 1)), "X"),
    "sdtcp": Look("SDTCP", "#0072B2", "--", "s"),
    "sccp": Look("SCCP", "#009E73", "-.", "^"),
    "sccp-measured": Look("SCCP, measured RTT", "#000000", "-.", "v"),
}
TRANSPORTS = {"reno": "plain", "cubic": "cubic", "bbr": "bbr", "ecn-tcp": "ecn", "dctcp": "dctcp"}
"""The scheme whose look a transport has where several share a plot."""
