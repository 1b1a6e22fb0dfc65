"""The bridge's controllers and fail mode replaced by the agent's, and restored.

The transaction that replaces them also saves them in the bridge's external_ids. If the agent is killed, its
successor or ``weir switch --detach`` finds there what to restore.

In the fail mode ``standalone``, Open vSwitch deletes all entries when its controllers have been gone for
three inactivity probes, and then forwards like a learning switch. In ``secure`` it keeps the entries.

| external_ids key | holds |
|---|---|
| weir-name | the name of the agent's data plane |
| weir-number | the bridge's number in the data plane |
| weir-controllers | the Controller rows that were there before, as JSON |
| weir-fail-mode | the fail mode that was there before; empty: none was set |
| weir-off | "true": all ports of the bridge are off (``weir off``); it outlives the agent |
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from openflow_ext.switch.errors import SwitchError
from openflow_ext.switch.ovs.ovsdb import Ovsdb, Row, as_list

NAME = "weir-name"
NUMBER = "weir-number"
CONTROLLERS = "weir-controllers"
FAIL_MODE = "weir-fail-mode"
_KEYS = (NAME, NUMBER, CONTROLLERS, FAIL_MODE)
OFF = "weir-off"
"""This key stays when the agent ends, so that a restart turns nothing on."""
SECURE = "secure"

COLUMNS = {
    "Bridge": ("name", "ports", "controller", "external_ids", "datapath_type", "fail_mode"),
    "Port": ("name", "interfaces"),
    "Interface": ("name", "ofport", "ifindex", "type"),
    "Controller": ("target",),
    "SSL": ("private_key", "certificate", "ca_cert"),
}
"""The OVSDB columns that the agent monitors."""

_WRITTEN_BY_OVS = ("_uuid", "_version", "is_connected", "role", "status")
_RECONNECT_MS = 1000
_PROBE_MS = 15_000
"""The inactivity probe if the controllers had none. It tests the controller, not the
agent: if the agent dies, the socket closes at once."""


def find_bridge(db: Ovsdb, name: str) -> tuple[str, Row] | None:
    """The (UUID, row) of a bridge."""
    for uuid, row in db.tables["Bridge"].items():
        if row["name"] == name:
            return uuid, row
    return None


def require(db: Ovsdb, name: str) -> tuple[str, Row]:
    """The (UUID, row) of a bridge. Raises SwitchError if Open vSwitch has no bridge of that name."""
    found = find_bridge(db, name)
    if found is None:
        names = ", ".join(sorted(row["name"] for row in db.tables["Bridge"].values())) or "none"
        raise SwitchError(f"Open vSwitch has no bridge {name}; its bridges: {names}")
    return found


def _is_passive(target: str) -> bool:
    """Whether the bridge listens on a target (ptcp:, pssl:, punix:). The agent leaves such targets alone."""
    return target.startswith("p")


def _controllers(db: Ovsdb, bridge: Row) -> dict[str, str]:
    """UUID -> target of the bridge's Controller rows."""
    rows = db.tables["Controller"]
    return {uuid: rows[uuid]["target"] for uuid in as_list(bridge["controller"]) if uuid in rows}


def targets(db: Ovsdb, bridge: Row) -> list[str]:
    """The targets of the controllers to which the bridge connects now."""
    return [target for target in _controllers(db, bridge).values() if not _is_passive(target)]


def saved_targets(bridge: Row) -> list[str]:
    """The targets of the controllers that an agent has replaced."""
    return [row["target"] for row in _saved(bridge)]


def _saved(bridge: Row) -> list[Row]:
    try:
        rows: list[Row] = json.loads(bridge["external_ids"].get(CONTROLLERS, "[]"))
        return [row for row in rows if row["target"]]
    except (ValueError, TypeError, KeyError) as error:
        raise SwitchError(
            f"bridge {bridge['name']}: external_ids:{CONTROLLERS} is damaged. Set the controllers with"
            f" ovs-vsctl set-controller and remove the key"
        ) from error


def is_ours(db: Ovsdb, bridge: Row, rundir: str) -> bool:
    """Whether the bridge's controllers are sockets of an agent."""
    now = targets(db, bridge)
    return bool(now) and all(_is_socket_of(target, bridge["name"], rundir) for target in now)


def _is_socket_of(target: str, bridge_name: str, rundir: str) -> bool:
    """Whether a target is an agent's socket. An earlier agent may have written the directory differently."""
    kind, _, path = target.partition(":")
    folder, name = os.path.split(path)
    same_folder = os.path.realpath(folder) == os.path.realpath(rundir)
    return kind == "unix" and name.startswith(f"{bridge_name}.controller") and same_folder


def fail_mode(bridge: Row) -> str:
    """The fail mode of the bridge; empty if none is set, which means standalone."""
    return "".join(as_list(bridge["fail_mode"]))


def is_secure(bridge: Row) -> bool:
    """Whether the bridge keeps its entries while it has no controller."""
    return fail_mode(bridge) == SECURE


def is_off(bridge: Row) -> bool:
    """Whether somebody has turned the ports of the bridge off."""
    return bool(bridge["external_ids"].get(OFF) == "true")


async def switch_off(db: Ovsdb, bridge_name: str, off: bool) -> None:
    """Note that the ports of a bridge are off, or no longer. Raises OvsdbError, SwitchError."""
    uuid, _ = require(db, bridge_name)
    mutations: list[Any] = [["external_ids", "delete", ["set", [OFF]]]]
    if off:
        mutations.append(["external_ids", "insert", ["map", [[OFF, "true"]]]])
    await db.transact(_on_bridge(uuid, "mutate", mutations=mutations))


def numbers(db: Ovsdb, bridges: Sequence[str]) -> dict[str, tuple[int, bool]]:
    """A number for each bridge, and whether the bridge already had it. Then its rules are still valid."""
    known: dict[str, int] = {}
    for row in db.tables["Bridge"].values():
        number = row["external_ids"].get(NUMBER, "")
        if number.isdecimal() and int(number) not in known.values():
            known[row["name"]] = int(number)
    taken = set(known.values())
    result = {}
    for name in bridges:
        if name in known:
            result[name] = known[name], True
            continue
        number = next(n for n in range(1, len(taken) + 2) if n not in taken)
        taken.add(number)
        result[name] = number, False
    return result


async def take_over(
    db: Ovsdb,
    bridge_name: str,
    ours: Sequence[str],
    rundir: str,
    name: str,
    number: int,
    packet_ins_per_s: int,
    noted: Mapping[str, str],
) -> dict[str, str]:
    """Make the agent's sockets ``ours`` the bridge's controllers, and its fail mode ``secure``.

    ``packet_ins_per_s``: the limit of packet-ins for each controller, if the controllers before had none.
    ``noted``: the external_ids of an earlier call, in case that somebody has removed them since then.
    Returns the external_ids. Raises OvsdbError, SwitchError.
    """
    uuid, bridge = require(db, bridge_name)
    bridge = bridge | {"external_ids": {**noted, **bridge["external_ids"]}}
    ids = {NAME: name, NUMBER: str(number), FAIL_MODE: _fail_mode_to_restore(bridge)}
    if is_ours(db, bridge, rundir):
        ids[CONTROLLERS] = bridge["external_ids"].get(CONTROLLERS, "[]")
    else:
        controllers = _controllers(db, bridge).items()
        ids[CONTROLLERS] = json.dumps(await _rows(db, [u for u, t in controllers if not _is_passive(t)]))
    before = json.loads(ids[CONTROLLERS])
    rows = [controller_row(target, before, packet_ins_per_s) for target in ours]
    await db.transact(
        _unchanged(uuid, bridge),
        *_replace(db, uuid, bridge, rows),
        _on_bridge(uuid, "update", row={"fail_mode": SECURE}),
        *_set_ids(uuid, ids),
    )
    return ids


def _fail_mode_to_restore(bridge: Row) -> str:
    """The saved fail mode. If the mode is not the agent's, it was set later and replaces the saved one."""
    return bridge["external_ids"].get(FAIL_MODE, SECURE) if is_secure(bridge) else fail_mode(bridge)


def controller_row(target: str, before: Sequence[Row], packet_ins_per_s: int) -> Row:
    """The row of one of the agent's sockets. It takes over the probes and limits of the rows ``before`` it.

    Open vSwitch divides a limit of packet-ins evenly among the ports that have some.
    """
    probe_ms = _first(before, "inactivity_probe")
    row: Row = {
        "target": target,
        "max_backoff": _RECONNECT_MS,
        "inactivity_probe": _PROBE_MS if probe_ms is None else probe_ms,
        "connection_mode": "out-of-band",
    }
    if limit := _first(before, "controller_rate_limit") or packet_ins_per_s:
        row["controller_rate_limit"] = limit
        row["controller_burst_limit"] = _first(before, "controller_burst_limit") or limit
    return row


def _first(rows: Sequence[Row], column: str) -> int | None:
    """The first value of an optional number."""
    return next((row[column] for row in rows if isinstance(row.get(column), int)), None)


async def restore(db: Ovsdb, bridge_name: str, rundir: str) -> None:
    """Restore the bridge's controllers and fail mode, unless somebody has set others meanwhile.

    Raises OvsdbError.
    """
    found = find_bridge(db, bridge_name)
    if found is None:
        return
    uuid, bridge = found
    operations = [_unchanged(uuid, bridge)]
    if is_ours(db, bridge, rundir):
        operations += _replace(db, uuid, bridge, _saved(bridge))
    before = _fail_mode_to_restore(bridge)
    operations.append(_on_bridge(uuid, "update", row={"fail_mode": before or ["set", []]}))
    await db.transact(*operations, *_set_ids(uuid, {}))


async def _rows(db: Ovsdb, uuids: Iterable[str]) -> list[Row]:
    """Whole Controller rows in OVSDB's notation, without the columns that Open vSwitch itself writes."""
    selects = [
        {"op": "select", "table": "Controller", "where": [["_uuid", "==", ["uuid", uuid]]]} for uuid in uuids
    ]
    results = await db.transact(*selects) if selects else []
    rows = [row for result in results for row in result["rows"]]
    return [{name: value for name, value in row.items() if name not in _WRITTEN_BY_OVS} for row in rows]


def _unchanged(uuid: str, bridge: Row) -> Row:
    """An operation that fails the transaction if controllers or fail mode have changed meanwhile."""
    now: list[Any] = ["set", [["uuid", controller] for controller in as_list(bridge["controller"])]]
    return {
        "op": "wait",
        "table": "Bridge",
        "where": [["_uuid", "==", ["uuid", uuid]]],
        "columns": ["controller", "fail_mode"],
        "until": "==",
        "rows": [{"controller": now, "fail_mode": fail_mode(bridge) or ["set", []]}],
        "timeout": 0,
    }


def _replace(db: Ovsdb, uuid: str, bridge: Row, rows: Sequence[Row]) -> list[Row]:
    """Operations that make ``rows`` the bridge's controllers. Targets on which it listens stay."""
    inserts = [
        {"op": "insert", "table": "Controller", "row": row, "uuid-name": f"weir{index}"}
        for index, row in enumerate(rows)
    ]
    kept = [["uuid", one] for one, target in _controllers(db, bridge).items() if _is_passive(target)]
    new = [["named-uuid", f"weir{index}"] for index in range(len(rows))]
    return [*inserts, _on_bridge(uuid, "update", row={"controller": ["set", kept + new]})]


def _set_ids(uuid: str, ids: dict[str, str]) -> list[Row]:
    mutations: list[Any] = [["external_ids", "delete", ["set", list(_KEYS)]]]
    if ids:
        mutations.append(["external_ids", "insert", ["map", [list(item) for item in ids.items()]]])
    return [_on_bridge(uuid, "mutate", mutations=mutations)]


def _on_bridge(uuid: str, operation: str, **arguments: Any) -> Row:
    return {"op": operation, "table": "Bridge", "where": [["_uuid", "==", ["uuid", uuid]]], **arguments}
