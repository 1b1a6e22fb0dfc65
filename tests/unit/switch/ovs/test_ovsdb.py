"""The OVSDB client with a scripted server; controllers and bridge numbers in external_ids."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openflow_ext.switch.agent import links_of
from openflow_ext.switch.errors import OvsdbError, SwitchError
from openflow_ext.switch.ovs import takeover
from openflow_ext.switch.ovs.ovsdb import JsonStream, Ovsdb, as_list, plain
from openflow_ext.switch.ovs.ports import Link
from tests.support.waiting import wait_until_async

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=8)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(st.text(max_size=5), JSON), max_size=5), st.integers(1, 40), st.booleans())
def test_json_values_are_complete_however_the_stream_is_divided(
    values: list[Any], size: int, ascii_only: bool
) -> None:
    data = b" ".join(json.dumps(value, ensure_ascii=ascii_only).encode() for value in values)
    stream = JsonStream()
    found = [value for at in range(0, len(data), size) for value in stream.feed(data[at : at + size])]
    assert found == values


@pytest.mark.parametrize("bad", [b"[1]", b"x", b"\xff\xff", b'{"a":1}]'])
def test_a_stream_that_is_not_json_rpc_is_an_error(bad: bytes) -> None:
    with pytest.raises(OvsdbError):
        JsonStream().feed(bad)


def test_ovsdb_values_become_python_values() -> None:
    assert plain(["set", [["uuid", "a"], 2]]) == ["a", 2]
    assert plain(["map", [["k", "v"]]]) == {"k": "v"}
    assert as_list(plain(["uuid", "a"])) == ["a"]
    assert as_list(plain(["set", []])) == []


Replies = Callable[[dict[str, Any]], list[dict[str, Any]]]


def with_server(folder: Path, replies: Replies, use: Callable[[Ovsdb], Awaitable[None]]) -> None:
    """Run ``use`` on a client. ``replies`` gives the server's answers to each message of the client."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stream = JsonStream()
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(4096):
                for message in stream.feed(data):
                    for reply in replies(message):
                        if reply.get("hang_up"):
                            writer.close()
                        else:
                            writer.write(json.dumps(reply).encode())
        writer.close()

    async def main() -> None:
        server = await asyncio.start_unix_server(serve, folder / "db.sock")
        db = await Ovsdb.connect(folder / "db.sock")
        try:
            await use(db)
        finally:
            await db.close()
            server.close()
            await asyncio.sleep(0.01)

    asyncio.run(main())


def test_the_replica_follows_updates_and_echo_is_answered(tmp_path: Path) -> None:
    echoed: list[Any] = []

    def update(rows: dict[str, Any]) -> dict[str, Any]:
        return {"method": "update", "params": [None, {"Bridge": rows}], "id": None}

    def replies(message: dict[str, Any]) -> list[dict[str, Any]]:
        match message.get("method"):
            case "monitor":
                initial = {"Bridge": {"u1": {"new": {"name": "s1", "ports": ["set", []]}}}}
                return [
                    {"id": "echo", "method": "echo", "params": ["hi"]},
                    {"id": message["id"], "result": initial, "error": None},
                    update({"u2": {"new": {"name": "s2", "ports": ["uuid", "p"]}}, "u1": {"old": {}}}),
                ]
            case None:
                echoed.append(message)
        return []

    async def use(db: Ovsdb) -> None:
        await db.monitor({"Bridge": ("name", "ports")})
        await wait_until_async(lambda: echoed and "u2" in db.tables["Bridge"], "the echo and the update")
        assert db.tables["Bridge"] == {"u2": {"name": "s2", "ports": "p"}}
        assert echoed == [{"id": "echo", "result": ["hi"], "error": None}]

    with_server(tmp_path, replies, use)


def test_failed_transactions_and_a_closed_connection_raise(tmp_path: Path) -> None:
    def replies(message: dict[str, Any]) -> list[dict[str, Any]]:
        if message["params"][1]["op"] == "bye":
            return [{"hang_up": True}]
        result = [{}, {"error": "timed out", "details": "wait"}]
        return [{"id": message["id"], "result": result, "error": None}]

    async def use(db: Ovsdb) -> None:
        with pytest.raises(OvsdbError, match="timed out: wait"):
            await db.transact({"op": "wait"})
        with pytest.raises(OvsdbError, match="closed the connection"):
            await db.transact({"op": "bye"})
        with pytest.raises(OvsdbError, match="closed the connection"):
            await db.transact({"op": "wait"})

    with_server(tmp_path, replies, use)


def test_a_missing_server_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OvsdbError, match=r"no OVSDB server at .*: start Open vSwitch"):
        asyncio.run(Ovsdb.connect(tmp_path / "db.sock"))


# -- what the replica says ---------------------------------------------------------------------------


def replica(**tables: dict[str, dict[str, Any]]) -> Any:
    return SimpleNamespace(tables={name: {} for name in takeover.COLUMNS} | tables)


def bridge(name: str = "s1", **row: Any) -> dict[str, Any]:
    return {"name": name, "ports": [], "controller": [], "external_ids": {}, **row}


PRESENT = range(1, 100)


def test_links_are_the_ports_with_a_device_and_a_number() -> None:
    def interface(name: str, ofport: Any, ifindex: Any) -> dict[str, Any]:
        return {"name": name, "ofport": ofport, "ifindex": ifindex, "type": ""}

    db = replica(
        Bridge={"b": bridge(ports=["p0", "p1", "p2", "p3", "p4", "gone"])},
        Port={f"p{n}": {"name": "", "interfaces": f"i{n}"} for n in range(4)}
        | {"p4": {"name": "bond", "interfaces": ["i4", "i5"]}},
        Interface={
            "i0": interface("s1", 65534, 3),
            "i1": interface("s1-eth1", 1, 11),
            "i2": interface("s1-eth2", -1, []),
            "i3": interface("s1-eth3", [], 13),
            "i4": interface("s1-eth4", 4, 14),
            "i5": interface("s1-eth5", 5, 15),
        },
    )
    links = [Link(11, "s1-eth1", 1), Link(14, "s1-eth4", 4), Link(15, "s1-eth5", 5)]
    assert links_of(db, "s1", (), PRESENT) == links
    assert links_of(db, "s1", links, PRESENT) == links
    assert links_of(db, "s9", (), PRESENT) == []
    assert links_of(db, "s1", links, {11, 15}) == [links[0], links[2]], "Open vSwitch has not seen it go"


def test_tunnels_that_share_a_device_are_no_links() -> None:
    """Open vSwitch states the device vxlan_sys_4789 for each VXLAN port of the kernel datapath."""

    def tunnels(*numbers: int) -> Any:
        names = {f"i{n}": f"vxlan{n}" for n in numbers}
        return replica(
            Bridge={"b": bridge(ports=["p"])},
            Port={"p": {"name": "tunnels", "interfaces": list(names)}},
            Interface={
                uuid: {"name": name, "ofport": n, "ifindex": 20, "type": "vxlan"}
                for (uuid, name), n in zip(names.items(), numbers, strict=True)
            },
        )

    one = Link(20, "vxlan1", 1)
    assert links_of(tunnels(1), "s1", (), PRESENT) == [one]
    assert links_of(tunnels(1, 2), "s1", [one], PRESENT) == []


def test_a_known_port_keeps_its_interface_number_while_ovsdb_does_not_state_it() -> None:
    def described(ofport: int, ifindex: Any) -> Any:
        interface = {"name": "s1-eth1", "ofport": ofport, "ifindex": ifindex, "type": ""}
        port = {"name": "s1-eth1", "interfaces": "i"}
        return replica(Bridge={"b": bridge(ports="p")}, Port={"p": port}, Interface={"i": interface})

    known = [Link(11, "s1-eth1", 1)]
    assert links_of(described(1, []), "s1", known, PRESENT) == known
    assert links_of(described(1, []), "s1", (), PRESENT) == []
    assert links_of(described(2, []), "s1", known, PRESENT) == [], "another port of this name"
    assert links_of(described(-1, []), "s1", known, PRESENT) == [], "its device is gone"
    assert links_of(described(1, 12), "s1", known, PRESENT) == [Link(12, "s1-eth1", 1)]


def test_bridges_keep_their_numbers_and_new_ones_get_free_numbers() -> None:
    db = replica(
        Bridge={
            "a": bridge("s1", external_ids={"weir-number": "2"}),
            "b": bridge("s2"),
            "c": bridge("s3", external_ids={"weir-number": "2"}),
            "d": bridge("s4", external_ids={"weir-number": "x"}),
        }
    )
    expected = {"s1": (2, True), "s2": (1, False), "s3": (3, False), "s4": (4, False)}
    assert takeover.numbers(db, ["s1", "s2", "s3", "s4"]) == expected


def test_controllers_are_the_agents_if_they_are_its_sockets() -> None:
    db = replica(
        Controller={
            "ours": {"target": "unix:/run/ovs/s1.controller"},
            "theirs": {"target": "tcp:127.0.0.1:6653"},
            "passive": {"target": "ptcp:6654"},
        }
    )
    assert takeover.is_ours(db, bridge(controller=["ours", "passive"]), "/run/ovs")
    assert not takeover.is_ours(db, bridge(controller=["ours", "theirs"]), "/run/ovs")
    assert not takeover.is_ours(db, bridge(controller="passive"), "/run/ovs")
    assert takeover.targets(db, bridge(controller=["theirs", "passive"])) == ["tcp:127.0.0.1:6653"]


def test_the_agents_sockets_are_known_under_another_spelling_of_their_directory(tmp_path: Path) -> None:
    """/var/run/openvswitch may be a link to /run/openvswitch."""
    (tmp_path / "run").mkdir()
    (tmp_path / "link").symlink_to("run")
    db = replica(Controller={"ours": {"target": f"unix:{tmp_path}/run/s1.controller"}})
    for spelling in ("run", "link", "link/", "./run/../link"):
        assert takeover.is_ours(db, bridge(controller="ours"), f"{tmp_path}/{spelling}")
    assert not takeover.is_ours(db, bridge(controller="ours"), f"{tmp_path}/elsewhere")
    assert not takeover.is_ours(db, bridge("s2", controller="ours"), f"{tmp_path}/run")


def test_the_agent_s_controllers_have_the_limits_of_the_bridge_s_own_or_the_default():
    unset = {"controller_rate_limit": ["set", []], "inactivity_probe": ["set", []]}
    row = takeover.controller_row("unix:x", [unset], 1000)
    assert (row["controller_rate_limit"], row["controller_burst_limit"]) == (1000, 1000)
    assert row["inactivity_probe"] == 15_000
    own = {"controller_rate_limit": 300, "controller_burst_limit": 50, "inactivity_probe": 5}
    row = takeover.controller_row("unix:x", [unset, own], 1000)
    assert (row["controller_rate_limit"], row["controller_burst_limit"]) == (300, 50)
    assert row["inactivity_probe"] == 5
    assert "controller_rate_limit" not in takeover.controller_row("unix:x", [unset], 0)


def test_damaged_saved_controllers_are_an_error() -> None:
    with pytest.raises(SwitchError, match="external_ids:weir-controllers is damaged"):
        takeover.saved_targets(bridge(external_ids={"weir-controllers": "[{"}))
    with pytest.raises(SwitchError, match="Open vSwitch has no bridge s9; its bridges: s1"):
        takeover.require(replica(Bridge={"a": bridge()}), "s9")
