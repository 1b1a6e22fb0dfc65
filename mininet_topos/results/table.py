"""The tables that `weir lab` prints: a row for each case and scheme, the most important columns first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mininet_topos.experiments.schemes import style_of
from mininet_topos.results.caveats import all_caveats
from mininet_topos.results.summary import Row
from weir_base.tables import Column
from weir_base.tables import Row as TableRow


def label(row: TableRow) -> str:
    """Return the label of a row's scheme, with an asterisk if the run is void."""
    return f"{style_of(row['scheme']).label}{'' if row['valid'] else ' *'}"


NOT_DONE = "not done"
"""Stands for a time that is infinite, because flows have not ended."""


def _of(key: str, name: str, text: Callable[[Any], str]) -> Callable[[TableRow], str]:
    """Return the text of one value of a group such as qct_ms; `-` if the run has none."""

    def of_row(row: TableRow) -> str:
        if not row[key]:
            return "-"
        return NOT_DONE if row[key][name] is None else text(row[key][name])

    return of_row


def _ms(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def _ratio(value: float) -> str:
    return f"{value:.2f}"


def _count(name: str) -> Callable[[TableRow], str]:
    """Return the text of a count: up to 9999 in full, then in thousands."""

    def text(row: TableRow) -> str:
        number = row[name]
        if number is None:
            return "-"
        return str(number) if number < 10_000 else f"{number / 1000:.0f}k"

    return text


def _slowdown(name: str, at: str) -> Callable[[TableRow], str]:
    """Return the text of a slowdown of a class of flows; `-` if it has no flows."""

    def text(row: TableRow) -> str:
        found = row["slowdown"].get(name)
        if not found:
            return "-"
        return NOT_DONE if found[at] is None else f"{found[at]:.1f}"

    return text


def _missed(row: TableRow) -> str:
    """Return the share of the missed deadlines in percent."""
    return "-" if row["missed"] is None else f"{100 * row['missed']:.1f}"


_CASE = Column("case", align="left", fold_at=9)
_SCHEME = Column("scheme", align="left", text=label, fold_at=9)
_MISSED = Column("missed", "missed\n%", text=_missed, help="Responses and flows that missed their deadline.")

QUERY_COLUMNS = (
    _CASE,
    _SCHEME,
    Column("ideal", "ideal\nms", text=lambda row: _ms(row["ideal_ms"])),
    Column("p50", "p50\nms", text=_of("qct_ms", "p50", _ms)),
    Column("p99", "p99\nms", text=_of("qct_ms", "p99", _ms)),
    Column("max", "max\nms", text=_of("qct_ms", "max", _ms)),
    Column("p50_x_ideal", "p50 x\nideal", text=_of("x_ideal", "p50", _ratio)),
    Column("drops", text=_count("drops")),
    Column("timeouts", "time-\nouts", text=_count("timeouts")),
    Column("retransmits", "re-\nsent", text=_count("retransmits")),
    Column("ovs_drops", "OVS\ndrops", text=_count("ovs_drops")),
    Column("clamps", text=_count("clamps")),
    Column("alarms", text=_count("alarms")),
    _MISSED,
    Column("p95", "p95\nms", text=_of("qct_ms", "p95", _ms)),
    Column("p99_x_ideal", "p99 x\nideal", text=_of("x_ideal", "p99", _ratio)),
    Column("disturbed", "dis-\nturbed", text=lambda row: str(len(row["disturbed"]))),
)
"""The columns for cases with queries."""

FLOW_COLUMNS = (
    _CASE,
    _SCHEME,
    Column("goodput_mbps", "goodput\nMbit/s"),
    Column("queue_pkts_p50", "queue\np50"),
    Column("queue_pkts_p95", "queue\np95"),
    Column("drops", text=_count("drops")),
    Column("marks", text=_count("marks")),
    Column("fairness", text=lambda row: "-" if row["fairness"] is None else _ratio(row["fairness"])),
    Column("fct_p50", "FCT p50\nms", text=_of("fct_ms", "p50", _ms)),
    Column("fct_p99", "FCT p99\nms", text=_of("fct_ms", "p99", _ms)),
    Column("flows_done", "flows\ndone"),
    _MISSED,
    Column("slow_p50", "slow-\ndown\np50", text=_slowdown("all", "p50")),
    Column("slow_p99", "slow-\ndown\np99", text=_slowdown("all", "p99")),
    Column("slow_short_p99", "p99 to\n10 KB", text=_slowdown("to_10kb", "p99")),
)
"""The columns for cases whose flows were sampled."""


def notes(rows: Sequence[Row]) -> list[str]:
    """Return the lines below the tables: the cases, what disturbed the runs, and the long flows."""
    lines = [f"{case}: {title}" for case, title in dict.fromkeys((row["case"], row["title"]) for row in rows)]
    if any(not row.get("pinned", True) for row in rows):
        lines.append("unpinned: the switch had no CPU of its own")
    lines += all_caveats(rows)
    for row in rows:
        if row["disturbed"]:
            p50 = row["qct_ms_undisturbed"].get("p50")
            lines.append(
                f"{row['case']}, {style_of(row['scheme']).label}: a CPU stood still in the first "
                f"{row['horizon_ms']:.0f} ms of {len(row['disturbed'])} of {row['queries']} queries; p50 "
                f"without these {'-' if p50 is None else _ms(p50)} ms"
            )
    for row in rows:
        rates = row["background_mbps"]
        if rates:
            after_s = row["recovery_s"]
            back = "they never reach 90 % again" if after_s is None else f"90 % again after {after_s:.1f} s"
            lines.append(
                f"{row['case']}, {style_of(row['scheme']).label}: long flows {rates['before']:.0f} Mbit/s "
                f"before, {rates['during']:.0f} during, {rates['after']:.0f} after the queries; {back}"
            )
    return lines
