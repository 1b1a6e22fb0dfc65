"""The table that `weir lab` prints: one row for each case and scheme. Fits a terminal of 80 columns."""

from __future__ import annotations

from rich import box
from rich.table import Table
from rich.text import Text

from mininet_topos.results.style import LOOKS
from mininet_topos.results.summary import PERCENTILES, Row

COUNTS = {
    "drops": "drops",
    "in OVS": "ovs_drops",
    "re- sent": "retransmits",
    "time outs": "timeouts",
    "ala- rms": "alarms",
    "cla- mps": "clamps",
}
FLOW_FIGURES = ("fairness", "queue_pkts_p50", "queue_pkts_p95", "drops", "marks", "flows_done")


def table(rows: list[Row]) -> Table:
    """Rows of summary.json as a table; void runs are marked with an asterisk."""
    made = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False, show_edge=False)
    made.add_column("QCT in ms", no_wrap=True)
    for heading in (*PERCENTILES, "p50 x", "p99 x", *COUNTS):
        made.add_column(heading, justify="right", overflow="fold")
    asked = [row for row in rows if row["queries"]]
    for case in dict.fromkeys(row["case"] for row in asked):
        some = [row for row in asked if row["case"] == case]
        made.add_row(Text(f"{case} ideal", style="bold"), f"{some[0]['ideal_ms']:.1f}")
        for row in some:
            made.add_row(*_cells(row), style=None if row["valid"] else "dim")
        made.add_section()
    return made


def notes(rows: list[Row]) -> list[str]:
    """What stands under the table: the cases, and what became of the long flows."""
    lines = [f"{case}: {title}" for case, title in dict.fromkeys((row["case"], row["title"]) for row in rows)]
    for row in rows:
        if row["queries_left_out"]:
            lines.append(
                f"{row['case']}, {LOOKS[row['scheme']].label}: {row['queries_left_out']} of {row['queries']} "
                f"queries left out: a CPU stood still, or the switch had none"
            )
    for row in rows:
        rates = row["background_mbps"]
        if rates:
            back = "not back" if row["recovery_s"] is None else f"back after {row['recovery_s']:.1f} s"
            who = f"{row['case']}, {LOOKS[row['scheme']].label}"
            lines.append(
                f"{who}: long flows {rates['before']:.0f} Mbit/s before, {rates['during']:.0f} during, "
                f"{rates['after']:.0f} after the queries; {back} at 90 %"
            )
    return lines


def flow_table(rows: list[Row]) -> Table:
    """The rows whose flows were sampled: what they got, how long they took, and how long the queue was."""
    made = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False, show_edge=False, collapse_padding=True)
    made.add_column("flows", no_wrap=True)
    for heading in (
        "Mbit/s",
        "fair",
        "queue p50",
        "queue p95",
        "drops",
        "marks",
        "done",
        "FCT p50",
        "FCT p99",
    ):
        made.add_column(heading, justify="right", overflow="fold")
    for row in rows:
        look = LOOKS[row["scheme"]]
        made.add_row(
            Text(f"{row['case']} {look.label}{'' if row['valid'] else ' *'}", style=look.colour),
            f"{row['goodput_mbps']:.1f}",
            *("-" if row[name] is None else f"{row[name]:g}" for name in FLOW_FIGURES),
            *(f"{row['fct_ms'][name]:.0f}" if row["fct_ms"] else "-" for name in ("p50", "p99")),
        )
    return made


def _cells(row: Row) -> list[str | Text]:
    look = LOOKS[row["scheme"]]
    return [
        Text(f"{look.label}{'' if row['valid'] else ' *'}", style=look.colour),
        *(_ms(row["qct_ms"][name]) if row["qct_ms"] else "-" for name in PERCENTILES),
        *(f"{row['x_ideal'][name]:.2f}" if row["x_ideal"] else "-" for name in ("p50", "p99")),
        *(_count(row[name]) for name in COUNTS.values()),
    ]


def _ms(value: float) -> str:
    """With a tenth as long as there is room for it."""
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def _count(number: int | None) -> str:
    """Whole up to 9999, then in thousands."""
    if number is None:
        return "-"
    return str(number) if number < 10_000 else f"{number / 1000:.0f}k"
