"""`weir why`: everything that was decided about a flow, read from the flow database, and the results."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from datetime import datetime

import click
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text
from sqlalchemy.orm import Session

from flowdb import schema
from flowdb.config import FlowDbSettings, database_url_of_argument
from flowdb.engine import open_reader, reporting_errors
from flowdb.explanation import (
    ExplainedDecision,
    FlowExplanation,
    NoSuchFlow,
    Values,
    explain_flow,
    find_flows,
)
from flowdb.flow import NS_PER_S, FiveTuple
from weir_base import tables
from weir_base.settings import VARIABLE, load

_INDENT = 4
_NO_DECISION = (
    "  The database holds no decision of SDTCP about it. SCCP records none, nor does\n"
    '  SDTCP\'s mode "weights". On the host of a switch, `weir ports` and `weir flows`\n'
    "  count the ACKs that SCCP clamps."
)


@click.command()
@click.argument("flow")
@click.option(
    "--last",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="Show at most this many decisions, the newest.",
)
@click.option("--config", type=click.Path(exists=True, dir_okay=False), help="The configuration file.")
@click.option("--db", help="The flow database: an SQLAlchemy URL or an SQLite file.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with every column.")
def why(flow: str, last: int, config: str | None, db: str | None, as_json: bool) -> None:
    """Show why SDTCP slowed FLOW down.

    For each decision: the alarm, the candidates, the equation, the entry and the reason for the lift.
    SCCP records no decisions, nor does SDTCP's mode "weights": "weir ports" and "weir flows" count the ACKs
    that SCCP clamps.

    FLOW is an id, or a 5-tuple in the direction of the data, such as '10.0.0.1:40000>10.0.0.2:80'. Quote
    the 5-tuple.

    Example: weir why '10.0.0.7:7000>10.0.0.1:40112' --db weir.db
    """
    if config:
        os.environ[VARIABLE] = config
    url = database_url_of_argument(db) if db else load("flowdb", FlowDbSettings).database_url
    engine = open_reader(url)
    with reporting_errors(url, "read"), Session(engine) as session:
        schema.require_newest(session.connection(), url)
        try:
            ids, all_flows = find_flows(session, flow)
        except (NoSuchFlow, ValueError) as error:
            raise click.ClickException(str(error)) from error
        explained = [explain_flow(session, flow_id, last, most_clamps=None) for flow_id in ids]
    found = [one for one in explained if one is not None]
    if as_json:
        click.echo(json.dumps({"flows": [one.as_dict() for one in found], "all_flows": all_flows}))
        return
    console = tables.console()
    for one in found:
        console.print(rendered(one, console.width))
    if all_flows > len(ids):
        console.print(f"{all_flows - len(ids)} older flows have this 5-tuple. Name one by its id.")


def rendered(found: FlowExplanation, width: int) -> RenderableType:
    """One flow's explanation as text of at most ``width`` columns, oldest first."""
    lines: list[RenderableType] = [_headline(found)]
    if not found.totals.count:
        if not found.decisions:
            lines.append(Text(_NO_DECISION))
        elif all(one.decision.entry.get("observed") for one in found.decisions):
            lines.append(Text("  SDTCP observed, and did not slow it down. Its decisions:"))
    if older := found.all_decisions - len(found.decisions):
        of_all = f"{older} of {found.all_decisions} decisions"
        lines.append(Text(f"  Not shown: {of_all}, the oldest; raise --last"))
    for one in reversed(found.decisions):
        lines += [Text(), *_decision(one, width)]
    if found.clamps:
        lines += [Text(), _clamp_table(found, width)]
    return Group(*lines, Text())


def _headline(found: FlowExplanation) -> Text:
    flow = found.flow
    key = FiveTuple(flow.src, flow.dst, flow.src_port, flow.dst_port)
    text = Text(f"Flow {flow.id}  {key}", style="bold")
    end = f"closed {_local_time(flow.closed_ns)} ({flow.close_reason})" if flow.closed_ns else flow.state
    text.append(f"\n  opened {_local_time(flow.opened_ns)}, {end}; sent {_scaled(flow.sent_bytes)}B", "dim")
    path = " -> ".join(f"{hop.dpid:016x}:{hop.out_port}" for hop in found.path) or "unknown"
    scale = "unknown" if flow.receiver_wscale is None else flow.receiver_wscale
    text.append(f"\n  MSS {flow.mss_bytes}, receiver's window scale {scale}; path {path}", "dim")
    return text


def _decision(one: ExplainedDecision, width: int) -> Iterable[RenderableType]:
    decision = one.decision
    port = f"{decision.dpid:016x}:{decision.port_no}"
    how = "by hand" if one.command else f"for port {port} by {decision.policy}"
    yield Text(f"  {_local_time(decision.decided_ns)}  chosen {how}", "bold cyan")
    yield Text(f"    cause     {_cause(one)}")
    yield Text(f"    chosen    from {decision.candidates} candidates; the first in the ranking:")
    yield Padding(_ranking(decision, width - _INDENT), (0, 0, 0, _INDENT))
    for line in _equation(decision):
        yield Text(f"    {line}")
    entry = decision.entry
    if entry:
        yield Text(f"    entry     switch {entry['switch']} table {entry['table']}: {entry['match']}")
        timeouts = f"idle {entry['idle_timeout_s']} s, hard {entry['hard_timeout_s']} s"
        yield Text(f"              {entry['action']}, {timeouts}")
        if entry.get("observed"):
            yield Text("    observed  no packet was changed; the entry counts the ACKs that it would change")
    answered_ns = decision.answered_ns
    after = f", {(answered_ns - decision.decided_ns) / 1e6:.1f} ms later" if answered_ns else ""
    yield Text(f"    answer    {decision.answer or 'none yet'}{after}")


def _cause(one: ExplainedDecision) -> str:
    alarm, command = one.alarm, one.command
    if command:
        return f"{command.asked_by} requested it: {command.kind} {json.dumps(command.arguments)}"
    reflex = "the switch's reflex at " if one.decision.origin == "reflex" else ""
    if not alarm:
        return f"{reflex}an alarm that was not recorded"
    # 0 or less: switch and controller have different clocks, so the delay is unknown (sdtcp_app/recorder.py).
    delay_us = (alarm.received_ns - alarm.crossing_ns) / 1000
    later = f", received {delay_us:.0f} us later" if delay_us > 0 else ""
    return f"{reflex}BUF_ALARM: {alarm.queue_pkts} packets, {alarm.queue_bytes} bytes in the queue{later}"


def _ranking(decision: Values, width: int) -> RenderableType:
    rows = [
        one | {"rank": rank, "chosen": "chosen" if one["flow_id"] == decision.flow_id else ""}
        for rank, one in enumerate(decision.ranking, 1)
    ]
    return tables.render(_RANKING_COLUMNS, rows, width)


def _equation(decision: Values) -> list[str]:
    """The equations of the SDTCP paper with this decision's numbers."""
    window, mss, wc = decision.window_bytes, decision.mss_bytes, decision.wc_bytes
    if decision.equation == 0:
        return [f"window    {window} bytes, as requested (at least one MSS, {mss})"]
    wr = "unknown" if decision.wr_bytes is None else decision.wr_bytes
    link = f"{_scaled(decision.capacity_bps)}bit/s x {decision.rtt_us} us"
    if decision.allowance_bytes:
        link = f"allowance {decision.allowance_bytes}"
    lines = [f"(2)       W_c = ({link} + {decision.queue_bytes}) / {decision.n} = {wc} bytes"]
    if decision.equation == 3:
        lines.append(f"(3)       W_r' = max(min({wc} / 2, W_r {wr}), MSS {mss}) = {window} bytes")
    else:
        lines.append(f"(5)       all flows are slowed: W_r' = max(min({wc}, W_r {wr}), MSS {mss})")
        lines.append(f"               = {window} bytes")
    if decision.alpha:
        lines.append(f"(4)       then {decision.alpha} MSS less with each ACK, down to one MSS, or to the")
        lines.append("          flow's part of the allowance if the port corrects it")
    return lines


def _clamp_table(found: FlowExplanation, width: int) -> Padding:
    rows = [
        clamp._asdict() | {"left_open_ns": found.left_open.get(clamp.id)} for clamp in reversed(found.clamps)
    ]
    return Padding(tables.render(_CLAMP_COLUMNS, rows, width - _INDENT), (0, 0, 0, _INDENT))


def _duration(clamp: tables.Row) -> str:
    if clamp["left_open_ns"] is not None:
        return f"{max(clamp['left_open_ns'] - clamp['pushed_ns'], 0) / NS_PER_S:.0f} s or more"
    if not clamp["lifted_ns"]:
        return "until now"
    return f"{(clamp['lifted_ns'] - clamp['pushed_ns']) / NS_PER_S:.3f} s"


def _lift_reason(clamp: tables.Row) -> str:
    if clamp["left_open_ns"] is not None:
        return f"not lifted: its controller is gone, last seen {_local_time(clamp['left_open_ns'])}"
    return str(clamp["lift_reason"] or "not lifted")


def _local_time(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns / NS_PER_S).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def _scaled(value: int) -> str:
    """A value with a decimal prefix, ready for its unit: ``1.5 M``."""
    for power, prefix in ((9, "G"), (6, "M"), (3, "k")):
        if value >= 10**power:
            return f"{value / 10**power:.4g} {prefix}"
    return f"{value} "


_RANKING_COLUMNS = (
    tables.Column("rank", heading=" "),
    tables.Column("flow", align="left", fold_at=24),
    tables.Column("chosen", heading=" ", align="left"),
    tables.Column("age", text=lambda row: f"{row['age_s']:.1f} s"),
    tables.Column("sent", text=lambda row: f"{_scaled(row['sent_bytes'])}B"),
    tables.Column("rate", text=lambda row: f"{_scaled(row['rate_bps'])}bit/s"),
    tables.Column("state", align="left"),
)
_CLAMP_COLUMNS = (
    tables.Column("from", align="left", text=lambda row: _local_time(row["pushed_ns"])),
    tables.Column("for", text=_duration),
    tables.Column("window", text=lambda row: f"{row['window_bytes']} bytes"),
    tables.Column(
        "reason",
        heading="reason for the lift",
        align="left",
        fold_at=20,
        text=_lift_reason,
    ),
)
