"""How every scheme looks, everywhere: label, colour (Okabe and Ito's colour-blind safe set), line, marker."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Look:
    """A scheme's label, colour, line style and marker."""

    label: str
    colour: str
    line: str
    marker: str


LOOKS = {
    "plain": Look("plain TCP", "#D55E00", "-", "o"),
    "sdtcp": Look("SDTCP", "#0072B2", "--", "s"),
    "sccp": Look("SCCP", "#009E73", "-.", "^"),
}
