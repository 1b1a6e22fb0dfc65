"""``weir ports`` and ``weir flows``: what a running data plane holds, read from its pinned maps."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from threading import Event
from typing import Any

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table

from openflow_ext.switch.dataplane import DataPlaneError, NoSuchPort, PortCounters
from openflow_ext.switch.pinned import PinnedMaps
from openflow_ext.switch.rules import CountOp, Network, Rule, TcpMatch, WindowOp

Row = dict[str, Any]

WATCH_S = 1.0
GROWING = (
    "alarms", "normals", "syns_counted", "fins_counted", "acks_seen", "clamped", "marked", "drops",
    "unscaled", "untracked",
)  # fmt: skip
"""The counters that only grow: `--watch` shows how fast."""
_SHOWN = [field.name for field in dataclasses.fields(PortCounters)]
_name_option = click.option("--name", default="weir", show_default=True, help="Name of the data plane.")


@contextlib.contextmanager
def _opened(name: str, as_json: bool) -> Iterator[PinnedMaps]:
    """The maps of a data plane; what goes wrong is one line and exit code 1."""
    try:
        maps = PinnedMaps(name)
        try:
            yield maps
        finally:
            maps.close()
    except DataPlaneError as error:
        if as_json:
            click.echo(json.dumps({"event": "error", "message": str(error)}))
        else:
            click.echo(f"weir: {error}", err=True)
        sys.exit(1)


@click.command()
@_name_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object a reading.")
@click.option("--watch", is_flag=True, help="Read again each second, with rates, until Ctrl-C.")
def ports(name: str, as_json: bool, watch: bool) -> None:
    """Show the ports of an extended switch: N_i, queue, alarms, what was counted, clamped and marked.

    \b
    n_i               flows counted at the port now, those that wait for their next payload too
    fair_share_bytes  what SET_WINDOW(fair share) gives each of those that send just now
    queue_*           the root qdisc's queue: now, and the longest since the programs were attached
    alarms, normals   BUF_ALARM and BUF_NORMAL sent
    acks_seen         ACKs that came in by the port; clamped: those whose window was lowered
    unscaled          ACKs left alone because the window scale is not known
    untracked         flows that found the flow table full
    drops             packets dropped by the port's qdiscs
    no_share          why no fair share is set: the capacity or a queue is lacking, the flow table is full

    Example: weir ports --watch
    """
    with _opened(name, as_json) as maps:
        _show_ports(maps, as_json, watch)


def _show_ports(maps: PinnedMaps, as_json: bool, watch: bool) -> None:
    console = Console()
    readings = _readings(lambda: read_ports(maps), _ctrl_c()) if watch else iter([read_ports(maps)])
    if as_json:
        for rows in readings:
            click.echo(json.dumps({"ports": rows}))
    elif not watch or not console.is_terminal:
        for rows in readings:
            console.print(_port_table(rows))
    else:
        with Live(console=console) as live:
            for rows in readings:
                live.update(_port_table(rows))


def _ctrl_c() -> Event:
    """Set by Ctrl-C. A KeyboardInterrupt is lost if it comes while Python takes down a generator, of which a
    table that is shown leaves many.
    """
    pressed = Event()
    signal.signal(signal.SIGINT, lambda *_: pressed.set())
    return pressed


def _readings(read: Callable[[], list[Row]], ended: Event) -> Iterator[list[Row]]:
    """A reading each second, each but the first with `rates`: by how much a counter grew, a second."""
    before: dict[int, Row] = {}
    read_at = time.monotonic()
    while not ended.is_set():
        rows = read()
        now = time.monotonic()
        for row in rows:
            if earlier := before.get(row["ifindex"]):
                row["rates"] = {one: (row[one] - earlier[one]) / (now - read_at) for one in GROWING}
        before, read_at = {row["ifindex"]: row for row in rows}, now
        yield rows
        ended.wait(WATCH_S)


def read_ports(maps: PinnedMaps) -> list[Row]:
    """Every port with its counters, by bridge and OpenFlow port number."""
    rows = []
    for ifindex, (bridge, ofport) in sorted(maps.ports().items(), key=lambda item: item[1]):
        try:
            counters = maps.counters(ifindex)
        except NoSuchPort:
            continue
        place = {"name": _interface(ifindex), "bridge": bridge, "ofport": ofport, "ifindex": ifindex}
        lacks = [reason.name.lower() for reason in counters.no_share if reason.name]
        rows.append(place | dataclasses.asdict(counters) | {"no_share": lacks})
    return rows


def _interface(ifindex: int) -> str:
    try:
        return socket.if_indextoname(ifindex)
    except OSError:
        return f"if{ifindex}"


def _port_table(rows: list[Row]) -> Table:
    """One column a port: a port has more counters than a terminal has room beside each other."""
    table = Table(title="Port counters")
    table.add_column("")
    for row in rows:
        table.add_column(f"{row['name']} ({row['ofport']})", justify="right")
    for shown in _SHOWN:
        table.add_row(shown, *(_cell(row, shown) for row in rows))
    return table


def _cell(row: Row, name: str) -> str:
    if isinstance(row[name], bool):
        return "yes" if row[name] else "no"
    if isinstance(row[name], list):
        return ", ".join(row[name]) or "-"
    rate = row.get("rates", {}).get(name)
    return f"{row[name]:,}" + (f" (+{rate:,.0f}/s)" if rate else "")


@click.command()
@_name_option
@click.option("--tracked", is_flag=True, help="Show the TCP flows that are tracked, not the entries.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=100,
    show_default=True,
    help="The most tracked flows to show, in no order; 0: all.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def flows(name: str, tracked: bool, limit: int, as_json: bool) -> None:
    """Show the extension's part of the flow entries, with its counters; or the flows that are tracked.

    The rest of each entry is Open vSwitch's: ovs-ofctl -O OpenFlow13 dump-flows BRIDGE shows that alone, a
    controller reads both parts as one.

    \b
    packets, bytes    segments that matched
    clamped           those whose window was lowered

    Examples: weir flows; weir flows --tracked --limit 20 --json
    """
    with _opened(name, as_json) as maps:
        kind = "flows" if tracked else "entries"
        rows = read_tracked(maps, limit) if tracked else read_entries(maps)
        if as_json:
            click.echo(json.dumps({kind: rows}))
        else:
            Console().print(_table(kind, rows))


def read_entries(maps: PinnedMaps) -> list[Row]:
    """The extension's part of every entry, in the order in which they are looked up."""
    bridges = sorted({bridge for bridge, _ in maps.ports().values()})
    return [
        {
            "bridge": bridge,
            "table": rule.table_id,
            "priority": rule.priority,
            "match": match_text(rule.match),
            "actions": actions_text(rule),
            "cookie": f"{rule.cookie:#x}",
            "idle_timeout": rule.idle_timeout_s,
            "hard_timeout": rule.hard_timeout_s,
            **dataclasses.asdict(stats),
        }
        for bridge in bridges
        for rule, stats in maps.rules(bridge)
    ]


def read_tracked(maps: PinnedMaps, limit: int) -> list[Row]:
    """The tracked flows, no more than ``limit``."""
    found = itertools.islice(maps.flows(), limit or None)
    return [{"port": _interface(flow.ifindex), **dataclasses.asdict(flow)} for flow in found]


def match_text(match: TcpMatch) -> str:
    """A match as ovs-ofctl writes it."""
    address = "nw" if match.ip_version == 4 else "ipv6"
    parts: list[tuple[str, Network | int | None]] = [
        ("in_port", match.in_port),
        (f"{address}_src", match.src),
        (f"{address}_dst", match.dst),
        ("tp_src", match.src_port),
        ("tp_dst", match.dst_port),
    ]
    named = [f"{name}={_plain(value)}" for name, value in parts if value is not None]
    if match.flags_mask:
        named.append(f"tcp_flags={match.flags:#x}/{match.flags_mask:#x}")
    return ",".join(["tcp" if match.ip_version == 4 else "tcp6", *named])


def _plain(value: Network | int) -> str:
    if isinstance(value, int) or value.prefixlen < value.max_prefixlen:
        return str(value)
    return str(value.network_address)


def actions_text(rule: Rule) -> str:
    """The extension's actions of an entry, by the papers' names."""
    window = {
        WindowOp.NONE: [],
        WindowOp.MOD_WINDOW: [f"MOD_WINDOW({rule.window_bytes}, alpha={rule.alpha})"],
        WindowOp.SET_WINDOW: [f"SET_WINDOW({rule.window_bytes})"],
        WindowOp.FAIR_SHARE: ["SET_WINDOW(fair share)"],
    }[rule.window_op]
    port = "output" if rule.count_port is None else rule.count_port
    count = [f"{rule.count_op.name}({port})"] if rule.count_op is not CountOp.NONE else []
    return ", ".join(window + count)


def _table(title: str, rows: list[Row]) -> Table:
    table = Table(title=title.capitalize())
    for name in rows[0] if rows else ["none"]:
        table.add_column(name, justify="left" if name in ("match", "actions", "local", "remote") else "right")
    for row in rows:
        table.add_row(*(_text(value) for value in row.values()))
    return table


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.1f}"
    return "-" if value is None else str(value)
