"""`weir why`: everything that was decided about a flow, out of the flow database, and what came of it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import click
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from sqlalchemy import inspect, select
from sqlalchemy.orm import Session

from flowdb.config import FlowDbSettings, database_url
from flowdb.engine import open_reader, said_plainly
from flowdb.flow import NS_PER_S, FiveTuple
from flowdb.models import AlarmRow, Base, ClampRow, CommandRow, DecisionRow, FlowRow, HopRow
from openflow_ext.settings import VARIABLE, load

_MOST_FLOWS = 10
Answer = dict[str, Any]


class NoSuchFlow(Exception):
    """The database holds no such flow."""


def answer(session: Session, name: str, last: int) -> list[Answer]:
    """Of each flow that ``name`` (an id or a 5-tuple) means: itself and its ``last`` decisions, in order.

    Raises NoSuchFlow, ValueError.
    """
    flows = list(session.scalars(_flows(name)))
    if not flows:
        raise NoSuchFlow(f"the flow database holds no flow {name}; `weir db stats` says what it holds")
    return [_about(session, flow, last) for flow in flows]


def _flows(name: str) -> Any:
    if name.isdecimal():
        return select(FlowRow).where(FlowRow.id == int(name))
    key = FiveTuple.parse(name)
    same = (FlowRow.src == key.src, FlowRow.dst == key.dst)
    ports = (FlowRow.src_port == key.src_port, FlowRow.dst_port == key.dst_port)
    return select(FlowRow).where(*same, *ports).order_by(FlowRow.opened_ns.desc()).limit(_MOST_FLOWS)


def _about(session: Session, flow: FlowRow, last: int) -> Answer:
    hops = session.scalars(select(HopRow).where(HopRow.flow_id == flow.id).order_by(HopRow.position))
    newest = select(DecisionRow).where(DecisionRow.flow_id == flow.id).order_by(DecisionRow.id.desc())
    decisions = reversed(session.scalars(newest.limit(last)).all())
    clamps = select(ClampRow).where(ClampRow.flow_id == flow.id).order_by(ClampRow.pushed_ns)
    return {
        "flow": _plain(flow),
        "path": [_plain(hop) for hop in hops],
        "decisions": [_decided(session, decision) for decision in decisions],
        "clamps": [_plain(clamp) for clamp in session.scalars(clamps)],
    }


def _decided(session: Session, decision: DecisionRow) -> Answer:
    alarm = session.get(AlarmRow, decision.alarm_id) if decision.alarm_id else None
    command = session.get(CommandRow, decision.command_id) if decision.command_id else None
    causes = {"alarm": alarm, "command": command}
    return _plain(decision) | {name: _plain(row) if row else None for name, row in causes.items()}


def _plain(row: Base) -> Answer:
    """A row as JSON has it; a datapath id as 16 hexadecimal digits."""
    values = {column.key: getattr(row, column.key) for column in inspect(type(row)).column_attrs}
    return values | ({"dpid": f"{values['dpid']:016x}"} if "dpid" in values else {})


@click.command()
@click.argument("flow")
@click.option("--last", default=5, show_default=True, help="The most decisions, the newest.")
@click.option("--config", type=click.Path(exists=True, dir_okay=False), help="The configuration file.")
@click.option("--db", help="The flow database: an SQLAlchemy URL or a file for SQLite.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, with every row whole.")
def why(flow: str, last: int, config: str | None, db: str | None, as_json: bool) -> None:
    """Say why FLOW was slowed down: the alarm, the candidates, the equation, the entry, the lift.

    FLOW is an id, or a 5-tuple such as '10.0.0.1:40000>10.0.0.2:80' (quote it), in the data's direction.

    Example: weir why '10.0.0.7:7000>10.0.0.1:40112' --db weir.db
    """
    if config:
        os.environ[VARIABLE] = config
    url = database_url(db) if db else load("flowdb", FlowDbSettings).database_url
    engine = open_reader(url)
    with said_plainly(url, "read"), Session(engine) as session:
        try:
            answers = answer(session, flow, last)
        except (NoSuchFlow, ValueError) as error:
            raise click.ClickException(str(error)) from error
    if as_json:
        click.echo(json.dumps({"flows": answers}))
        return
    console = Console()
    for one in answers:
        console.print(shown(one))


def shown(about: Answer) -> RenderableType:
    """One flow's answer, for a person."""
    flow, decisions, clamps = about["flow"], about["decisions"], about["clamps"]
    lines: list[RenderableType] = [_headline(flow, about["path"])]
    if not decisions:
        lines.append(Text("  It was never slowed down."))
    for decision in decisions:
        lines += [Text(), *_story(decision)]
    if clamps:
        lines += [Text(), _clamp_table(clamps)]
    return Group(*lines, Text())


def _headline(flow: Answer, path: list[Answer]) -> Text:
    key = FiveTuple(flow["src"], flow["dst"], flow["src_port"], flow["dst_port"])
    text = Text(f"Flow {flow['id']}  {key}", style="bold")
    end = (
        f"closed {_clock(flow['closed_ns'])} ({flow['close_reason']})" if flow["closed_ns"] else flow["state"]
    )
    text.append(f"\n  opened {_clock(flow['opened_ns'])}, {end}; sent {_amount(flow['sent_bytes'])}B", "dim")
    hops = " -> ".join(f"{hop['dpid']}:{hop['out_port']}" for hop in path)
    text.append(
        f"\n  MSS {flow['mss_bytes']}, receiver's window scale {flow['receiver_wscale']}; {hops}", "dim"
    )
    return text


def _story(decision: Answer) -> Iterable[RenderableType]:
    port = f"{decision['dpid']}:{decision['port_no']}"
    how = "by hand" if decision["command"] else f"for port {port} by {decision['policy']}"
    yield Text(f"  {_clock(decision['decided_ns'])}  chosen {how}", "bold cyan")
    yield Text(f"    cause     {_cause(decision)}")
    yield Text(f"    chosen    of {decision['candidates']} candidates, of which the first were:")
    yield Padding(_ranking(decision), (0, 0, 0, 14))
    for line in _equation(decision):
        yield Text(f"    {line}")
    entry = decision["entry"]
    if entry:
        yield Text(f"    entry     switch {entry['switch']} table {entry['table']}: {entry['match']}")
        timeouts = f"idle {entry['idle_timeout_s']} s, hard {entry['hard_timeout_s']} s"
        yield Text(f"              {entry['action']}, {timeouts}")
    answered_ns = decision["answered_ns"]
    after = f", {(answered_ns - decision['decided_ns']) / 1e6:.1f} ms later" if answered_ns else ""
    yield Text(f"    answer    {decision['answer'] or 'none yet'}{after}")


def _cause(decision: Answer) -> str:
    alarm, command = decision["alarm"], decision["command"]
    if command:
        return f"{command['asked_by']} asked for it: {command['kind']} {json.dumps(command['arguments'])}"
    reflex = "the switch's own first step at " if decision["origin"] == "reflex" else ""
    if not alarm:
        return f"{reflex}an alarm that was not recorded"
    waited_us = (alarm["received_ns"] - alarm["crossing_ns"]) / 1000
    return (
        f"{reflex}BUF_ALARM: {alarm['queue_pkts']} packets, {alarm['queue_bytes']} bytes in the queue,"
        f" received {waited_us:.0f} us after the crossing"
    )


def _ranking(decision: Answer) -> Table:
    table = Table("", "flow", "age", "sent", "rate", "state", box=None, padding=(0, 2, 0, 0))
    for place, one in enumerate(decision["ranking"], 1):
        style = "bold" if one["flow_id"] == decision["flow_id"] else ""
        sent, rate = f"{_amount(one['sent_bytes'])}B", f"{_amount(one['rate_bps'])}bit/s"
        table.add_row(str(place), one["flow"], f"{one['age_s']:.1f} s", sent, rate, one["state"], style=style)
    return table


def _equation(decision: Answer) -> list[str]:
    """The equation with its numbers, as in the paper."""
    window, mss, wc = decision["window_bytes"], decision["mss_bytes"], decision["wc_bytes"]
    if decision["equation"] == 0:
        return [f"window    {window} bytes, as asked (at least one MSS, {mss})"]
    wr = "unknown" if decision["wr_bytes"] is None else decision["wr_bytes"]
    pipe = f"{_amount(decision['capacity_bps'])}bit/s x {decision['rtt_us']} us"
    lines = [f"(2)       W_c = ({pipe} + {decision['queue_bytes']}) / {decision['n']} = {wc} bytes"]
    if decision["equation"] == 3:
        lines.append(f"(3)       W_r' = max(min({wc} / 2, W_r {wr}), MSS {mss}) = {window} bytes")
        lines.append(f"(4)       and {decision['alpha']} MSS less with each ACK, down to one")
    else:
        lines.append(f"(5)       all are slowed: W_r' = max(min({wc}, W_r {wr}), MSS {mss}) = {window} bytes")
    return lines


def _clamp_table(clamps: list[Answer]) -> Padding:
    table = Table("slowed", "for", "window", "lifted because", box=None, padding=(0, 2, 0, 0))
    for clamp in clamps:
        lasted = (clamp["lifted_ns"] - clamp["pushed_ns"]) / NS_PER_S if clamp["lifted_ns"] else None
        table.add_row(
            _clock(clamp["pushed_ns"]),
            "until now" if lasted is None else f"{lasted:.3f} s",
            f"{clamp['window_bytes']} bytes",
            clamp["lift_reason"] or "it is not lifted",
        )
    return Padding(table, (0, 0, 0, 2))


def _clock(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns / NS_PER_S).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def _amount(value: int) -> str:
    """With a decimal prefix and the space before the unit."""
    for power, prefix in ((9, "G"), (6, "M"), (3, "k")):
        if value >= 10**power:
            return f"{value / 10**power:.4g} {prefix}"
    return f"{value} "
