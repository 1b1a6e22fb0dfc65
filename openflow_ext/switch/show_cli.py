"""``weir ports`` and ``weir flows``: the contents of a running data plane, read from its pinned maps."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import click
from rich.console import Group
from rich.live import Live

from openflow_ext.switch.config import SwitchSettings
from openflow_ext.switch.dataplane.interface import DataPlaneError, NoShare, NoSuchPort
from openflow_ext.switch.dataplane.pinned_maps import PinnedMaps
from openflow_ext.switch.dataplane.rules import CountOp, Network, Rule, TcpMatch, WindowOp
from openflow_ext.switch.errors import SwitchError
from weir_base import tables
from weir_base.port_counters import PORT_COUNTERS, PortCounter
from weir_base.settings import SettingsError, load
from weir_base.signals import Awaited, awaited
from weir_base.tables import Column

Row = dict[str, Any]

WATCH_S = 1.0
"""Seconds between two readings of ``--watch``."""
GROWING = tuple(name for name, counter in PORT_COUNTERS.items() if counter.kind == "counter")
"""The counters that only grow. ``--watch`` shows by how much each grows in a second."""

_name_option = click.option("--name", help="Name of the data plane (default: [switch] name).")


def _counter_column(counter: PortCounter) -> Column:
    heading = counter.title.replace(" ", "\n")
    return Column(counter.name, heading, text=partial(_counter_text, name=counter.name), help=counter.help)


def _counter_text(row: tables.Row, name: str) -> str:
    """A counter with thousands separators, followed by its growth per second if ``--watch`` knows it."""
    rate = row.get("rates", {}).get(name)
    return f"{row[name]:,}" + (f" +{rate:,.0f}/s" if rate else "")


_IN_BRIEF = [_counter_column(counter) for counter in PORT_COUNTERS.values() if counter.in_brief]
_OTHERS = [_counter_column(counter) for counter in PORT_COUNTERS.values() if not counter.in_brief]

PORT_COLUMNS = (
    Column("name", align="left", help="The interface."),
    *_IN_BRIEF,
    Column("observes", help="Whether the port counts the packets that it would change, and changes none."),
    Column("no_share", help="Why no fair share is set: capacity or queue unknown, flow table full."),
    Column("allowance_limit", help="What determines the allowance, such as fixed or loop."),
    Column("alarm_up", help="Whether the queue is congested."),
    *_OTHERS,
    Column("share_by", help="Whether each flow or each host has an equal share."),
    Column("ofport", help="The OpenFlow port number."),
    Column("bridge", help="The number of the bridge in the data plane."),
    Column("ifindex", help="The number of the interface."),
)
ENTRY_COLUMNS = (
    Column("bridge", help="number of the bridge in the data plane"),
    Column("table", help="OpenFlow table"),
    Column("priority", heading="prio", help="priority; the highest one of a table acts"),
    Column(
        "match",
        align="left",
        text=lambda row: row["match"].replace(",", ", "),
        fold_at=20,
        help="matched segments",
    ),
    Column("actions", align="left", fold_at=20, help="actions of the extension"),
    Column("packets", help="segments that matched"),
    Column("clamped", help="segments whose window was lowered, or would be if nothing observed"),
    Column("cookie", help="the controller's cookie"),
    Column("bytes", help="bytes of the segments that matched"),
    Column("idle_timeout", help="in seconds, 0: none"),
    Column("hard_timeout", help="in seconds, 0: none"),
)
FLOW_COLUMNS = (
    Column("port", align="left", help="interface by which the flow leaves"),
    Column("local", align="left", help="address of the host behind the port"),
    Column("local_port", help="its TCP port"),
    Column("remote", align="left", help="address of the other host"),
    Column("remote_port", help="its TCP port"),
    Column("state", align="left", help="opening, established, idle, closing or reset"),
    Column("sent_bytes", help="bytes that left by the port, headers included"),
    Column("silent_s", help="seconds since the last segment"),
    Column("age_s", help="seconds since the first segment"),
    Column("counted", help="whether the flow is one of the port's N_i"),
    Column("local_scale", help="window scale of the host behind the port"),
    Column("remote_scale", help="window scale of the other host"),
    Column("local_mss", help="MSS of the host behind the port"),
    Column("remote_mss", help="MSS of the other host"),
    Column("ifindex", help="number of the interface"),
)


@contextlib.contextmanager
def _opened(name: str | None, as_json: bool) -> Iterator[PinnedMaps]:
    """The maps of a data plane, by default of the one that the settings name.

    An error is printed as one line, and the command ends with exit code 1.
    """
    try:
        maps = PinnedMaps(name or load("switch", SwitchSettings).name)
        try:
            yield maps
        finally:
            maps.close()
    except (DataPlaneError, SettingsError, SwitchError) as error:
        if as_json:
            click.echo(json.dumps({"event": "error", "message": str(error)}))
        else:
            click.echo(f"weir: {error}", err=True)
        sys.exit(1)


# -- weir ports ----------------------------------------------------------------------------------------


@click.command(epilog=f"Columns, the most important first:\n\n{tables.described(PORT_COLUMNS)}")
@_name_option
@click.option("--port", "wanted", multiple=True, metavar="NAME", help="Show this port only; can be repeated.")
@tables.options(PORT_COLUMNS)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per reading, with every field.")
@click.option("--watch", is_flag=True, help="Read again each second, with rates, until Ctrl-C.")
def ports(
    name: str | None,
    wanted: tuple[str, ...],
    columns: tuple[str, ...],
    sort: str | None,
    as_json: bool,
    watch: bool,
) -> None:
    """Show the ports of an extended switch: N_i, queue, fair share, alarms and other counters.

    The columns that do not fit the terminal are named below the table. Choose them with --columns.

    \b
    Examples:
      weir ports --watch
      weir ports --sort queue_pkts --columns name,n_i,queue_pkts,queue_max_pkts
      weir ports --port s1-eth1 --port s1-eth2 --json
    """
    with _opened(name, as_json) as maps:
        read = partial(read_ports, maps, wanted)
        _require_ports(wanted, [_interface(ifindex) for ifindex in maps.ports()])
        readings = _readings_until_ctrl_c(read) if watch else iter([read()])
        if as_json:
            for rows in readings:
                click.echo(json.dumps({"ports": tables.sorted_rows(rows, sort), "max_flows": maps.max_flows}))
        else:
            size = f"The flow table has room for {maps.max_flows:,} flows ([switch] max_flows)."
            _show_ports(readings, watch, columns, sort, size)


def _require_ports(wanted: Sequence[str], present: Sequence[str]) -> None:
    """Raises SwitchError if the data plane has no port of a wanted name."""
    for name in wanted:
        if name not in present:
            known = ", ".join(present) or "none"
            raise SwitchError(f"port {name} does not carry the data plane; the ports that do: {known}")


def _show_ports(
    readings: Iterator[list[Row]], watch: bool, columns: tuple[str, ...], sort: str | None, note: str
) -> None:
    """Print each reading as a table, with a note below unless columns were chosen.

    On a terminal, ``--watch`` redraws one table that fits the screen.
    """
    console = tables.console()
    redraw = watch and console.is_terminal
    widths: dict[str, int] = {}
    live = Live(console=console, auto_refresh=False) if redraw else None
    with live or contextlib.nullcontext():
        for rows in readings:
            table = tables.render(
                PORT_COLUMNS,
                tables.sorted_rows(rows, sort),
                console.width,
                empty="No port carries the programs of this data plane.",
                only=columns,
                choose_with="--columns",
                max_rows=max(1, console.height - _ROWS_BESIDE_PORTS) if redraw else None,
                choose_rows_with="--port or --sort",
                widths=widths if watch else None,
            )
            shown = table if columns else Group(table, note)
            if live:
                live.update(shown, refresh=True)
            else:
                console.print(shown)


_ROWS_BESIDE_PORTS = 9
"""Lines of a watched table that are not ports: at most three of headings, five of notes, and the cursor's."""


def _readings_until_ctrl_c(read: Callable[[], list[Row]]) -> Iterator[list[Row]]:
    """One reading each second. KeyboardInterrupt does not suffice to end them.

    Python discards it if it comes while a generator is finalised, and rich uses many of them to draw a table.
    """
    with awaited(signal.SIGINT) as ended:
        yield from _readings(read, ended)


def _readings(read: Callable[[], list[Row]], ended: Awaited) -> Iterator[list[Row]]:
    """One reading each second until ``ended``. From the second on, ``rates`` holds the growth per second."""
    before: dict[int, Row] = {}
    read_at = time.monotonic()
    while True:
        rows = read()
        now = time.monotonic()
        for row in rows:
            if earlier := before.get(row["ifindex"]):
                row["rates"] = {name: (row[name] - earlier[name]) / (now - read_at) for name in GROWING}
        before, read_at = {row["ifindex"]: row for row in rows}, now
        yield rows
        if ended.wait(WATCH_S):
            return


def read_ports(maps: PinnedMaps, wanted: Sequence[str] = ()) -> list[Row]:
    """The counters of each port, ordered by bridge and OpenFlow port number.

    ``wanted`` limits them to the ports of these names.
    """
    rows = []
    for ifindex, (bridge, ofport) in sorted(maps.ports().items(), key=lambda item: item[1]):
        name = _interface(ifindex)
        if wanted and name not in wanted:
            continue
        try:
            counters = maps.counters(ifindex)
        except NoSuchPort:
            continue
        identity = {"name": name, "bridge": bridge, "ofport": ofport, "ifindex": ifindex}
        reasons = [reason.name.lower() for reason in NoShare.of_flags(counters.flags) if reason.name]
        values = {name: getattr(counters, name) for name in PORT_COUNTERS}
        state = {
            "allowance_limit": counters.allowance_limit,
            "alarm_up": counters.alarm_up,
            "observes": counters.observes,
            "share_by": counters.share_by,
        }
        rows.append(identity | values | state | {"no_share": reasons})
    return rows


def _interface(ifindex: int) -> str:
    """The name of an interface, or ``if`` and its number if the interface is gone."""
    try:
        return socket.if_indextoname(ifindex)
    except OSError:
        return f"if{ifindex}"


# -- weir flows ----------------------------------------------------------------------------------------


@click.command(
    epilog="Columns of entries:\n\n"
    + tables.described(ENTRY_COLUMNS)
    + "\n\nColumns of tracked flows:\n\n"
    + tables.described(FLOW_COLUMNS)
)
@_name_option
@click.option("--tracked", is_flag=True, help="Show the tracked TCP flows instead of the entries.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=100,
    show_default=True,
    help="Show at most this many tracked flows, the first ones by --sort; 0: all.",
)
@tables.options((*ENTRY_COLUMNS, *FLOW_COLUMNS))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with every field.")
def flows(
    name: str | None, tracked: bool, limit: int, columns: tuple[str, ...], sort: str | None, as_json: bool
) -> None:
    """Show the extension's part of the flow entries with its counters, or the tracked TCP flows.

    Open vSwitch holds the other part of each entry. "ovs-ofctl -O OpenFlow13 dump-flows BRIDGE" shows that
    part alone; a controller reads both parts as one entry.

    \b
    Examples:
      weir flows
      weir flows --tracked --limit 20 --json
      weir flows --tracked --limit 0 --sort sent_bytes
    """
    kind, known = ("flows", FLOW_COLUMNS) if tracked else ("entries", ENTRY_COLUMNS)
    _require_columns(known, columns, sort)
    with _opened(name, as_json) as maps:
        rows = read_tracked(maps, limit, sort) if tracked else tables.sorted_rows(read_entries(maps), sort)
        if as_json:
            click.echo(json.dumps({kind: rows}))
        else:
            tables.show(known, rows, empty=f"no {kind}", only=columns, choose_with="--columns")


def _require_columns(known: Sequence[Column], columns: tuple[str, ...], sort: str | None) -> None:
    """Raises BadParameter for a column of the other table: entries and tracked flows have different ones."""
    names = [column.name for column in known]
    for name in (*columns, *([sort] if sort else [])):
        if name not in names:
            raise click.BadParameter(f"no column {name!r} in this table; its columns are: {', '.join(names)}")


def read_entries(maps: PinnedMaps) -> list[Row]:
    """The extension's part of every entry, in the order in which the data plane looks them up."""
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


def read_tracked(maps: PinnedMaps, limit: int, sort: str | None = None) -> list[tables.Row]:
    """At most ``limit`` tracked flows, ordered by the column ``sort`` (None: no order). 0: all of them."""
    flows = ({"port": _interface(flow.ifindex), **dataclasses.asdict(flow)} for flow in maps.flows())
    if sort is None:
        return list(itertools.islice(flows, limit or None))
    return tables.sorted_rows(list(flows), sort)[: limit or None]


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
    named = [f"{name}={_value_text(value)}" for name, value in parts if value is not None]
    if match.flags_mask:
        named.append(f"tcp_flags={match.flags:#x}/{match.flags_mask:#x}")
    return ",".join(["tcp" if match.ip_version == 4 else "tcp6", *named])


def _value_text(value: Network | int) -> str:
    """A number, a network, or the address of a network that holds one address."""
    if isinstance(value, int) or value.prefixlen < value.max_prefixlen:
        return str(value)
    return str(value.network_address)


def actions_text(rule: Rule) -> str:
    """The extension's actions of an entry, by the names of the papers."""
    window = {
        WindowOp.NONE: [],
        WindowOp.MOD_WINDOW: [f"MOD_WINDOW({rule.window_bytes}, alpha={rule.alpha})"],
        WindowOp.SET_WINDOW: [f"SET_WINDOW({rule.window_bytes})"],
        WindowOp.FAIR_SHARE: ["SET_WINDOW(fair share)"],
    }[rule.window_op]
    port = "output" if rule.count_port is None else rule.count_port
    count = [f"{rule.count_op.name}({port})"] if rule.count_op is not CountOp.NONE else []
    observe = ["OBSERVE"] if rule.observes else []
    return ", ".join(observe + window + count)
