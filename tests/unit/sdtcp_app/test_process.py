"""The apps in a real controller process, under both engines, against a scripted switch."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from ipaddress import IPv4Address

import pytest

from flowdb.models import AlarmRow, ClampRow, DecisionRow, FlowRow, HostRow, RunRow
from openflow_ext import wire
from tests.support.controllers.processes import free_port
from tests.support.database.rows import rows
from tests.support.openflow.scripted_switch import (
    PACKET_IN,
    SYN,
    ScriptedSwitch,
    arp,
    handshake,
    mac,
    segment,
)
from tests.support.waiting import wait_until
from weir_base.paths import PROJECT

APPS = ["fabric_app.app", "sdtcp_app.app", "sccp_app.app"]
RYU = "from openflow_ext.engine import ryu_manager; ryu_manager()"
SDTCP, FABRIC, SCCP = 0x5745_4902_0000_0000, 0x5745_4901_0000_0000, 0x5745_4903_0000_0000


class Controller:
    def __init__(self, engine, folder, apps=APPS):
        self.port = free_port()
        self.database = folder / "weir.db"
        self.log = folder / f"controller-{self.port}.log"
        options = ["--ofp-listen-host", "127.0.0.1", "--ofp-tcp-listen-port", str(self.port)]
        weir = ["-m", "weir", "controller", "--engine", "os-ken", "--listen", f"127.0.0.1:{self.port}"]
        program = {"ryu": ["-c", RYU, *options, *apps], "os_ken": [*weir, "--apps", ",".join(apps)]}[engine]
        variables = {"WEIR_DB": str(self.database), "PYTHONPATH": str(PROJECT)}
        environment = {k: v for k, v in os.environ.items() if not k.startswith("WEIR_")} | variables
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, *program], cwd=folder, env=environment, stdout=log, stderr=log
            )

    def stop(self, number=signal.SIGTERM):
        """Stop the process; returns its log."""
        self.process.send_signal(number)
        self.process.wait(30)
        return self.log.read_text()

    def rows(self, model):
        return rows(self.database, model)


@pytest.fixture(params=["ryu", "os_ken"])
def engine(request):
    return request.param


@pytest.fixture
def start(tmp_path):
    started = []

    def run(engine, **kwargs):
        started.append(Controller(engine, tmp_path, **kwargs))
        return started[-1]

    yield run
    for controller in started:
        if controller.process.poll() is None:
            controller.process.kill()
            controller.process.wait()
        print(controller.log.read_text())


@pytest.fixture
def connect():
    switches = []

    def make(controller, **kwargs):
        switches.append(ScriptedSwitch(controller.port, **kwargs))
        return switches[-1]

    yield make
    for switch in switches:
        switch.close()


def open_two(switch):
    """Two connections into host 3, the first from host 1, the second from host 2.

    Host 4 speaks last. Its entry in table 3 shows that the controller has handled the handshakes, which an
    alarm would overtake: SDTCP's app takes alarms from a queue of its own.
    """
    for client in (1, 2):
        syn, syn_ack = handshake(client, 3, sport=1000 + client)
        switch.packet_in(client, syn)
        switch.packet_in(3, syn_ack)
    switch.packet_in(4, arp(1, 4, 4))
    hosts = {mac(1), mac(2), mac(3), mac(4)}
    switch.wait(lambda: hosts <= {mod.match.get("eth_dst") for mod in switch.flow_mods(table_id=3)})


def alarm(port_no=3, queue_bytes=45_000, n_i=2):
    port = wire.OfpPort(port_no, name=b"p3")
    return wire.BufAlarm(port, 30, queue_bytes, 100_000_000, SDTCP, 0, n_i, time.time_ns())


def clamps(switch):
    return [mod for mod in switch.flow_mods(table_id=0, command=0) if mod.cookie == SDTCP]


def test_an_alarm_slows_the_longest_lived_flow(start, connect, engine):
    controller = start(engine)
    switch = connect(controller)
    switch.wait(lambda: switch.flow_mods(table_id=3, priority=0))
    open_two(switch)
    switch.extension(alarm())
    (clamp,) = switch.wait(lambda: clamps(switch))
    assert clamp.match == {
        "eth_type": 0x800, "ip_proto": 6, "ipv4_src": "10.0.0.3", "ipv4_dst": "10.0.0.1",
        "tcp_src": 80, "tcp_dst": 1001,
    }  # fmt: skip
    assert (clamp.priority, clamp.goto, clamp.idle_timeout, clamp.hard_timeout) == (65535, 1, 5, 30)
    # W_c = (100 Mbit/s * 1 ms / 8 + 45,000) / 2 = 28,750; W_r' = W_c / 2
    assert [action.to_wire() for action in clamp.extension] == [wire.ModWindow(14_375, 5)]

    normal = wire.BufNormal(wire.OfpPort(3), 0, 0, 100_000_000, SDTCP, 0, 2, time.time_ns())
    switch.extension(normal)
    switch.packet_in(2, segment(2, 3, 0x11, sport=1002))  # the FIN of the one burst flow
    lifted = switch.wait(lambda: switch.flow_mods(table_id=0, command=4))
    assert lifted[0].match == clamp.match
    log = controller.stop()
    assert "Traceback" not in log.replace("KeyboardInterrupt", ""), log
    assert sorted((row.src, row.close_reason) for row in controller.rows(FlowRow)) == [
        ("10.0.0.1", None), ("10.0.0.2", "fin"), ("10.0.0.3", None), ("10.0.0.3", None),
    ]  # fmt: skip
    assert [row.kind for row in controller.rows(AlarmRow)] == ["alarm", "normal"]
    (decision,) = controller.rows(DecisionRow)
    assert (decision.n, decision.wc_bytes, decision.window_bytes, decision.candidates) == (
        2,
        28_750,
        14_375,
        2,
    )
    (row,) = controller.rows(ClampRow)
    assert row.lift_reason == "normal and burst over"
    assert {host.mac for host in controller.rows(HostRow)} == {mac(1), mac(2), mac(3), mac(4)}
    assert controller.rows(RunRow)[0].ended_ns is not None


def test_alarms_of_a_port_are_answered_while_another_port_floods(start, connect, engine):
    """Before each alarm, port 2 announces 240 hosts, and sends as many SYNs of hosts that do not exist."""
    controller = start(engine)
    switch = connect(controller)
    switch.wait(lambda: switch.flow_mods(table_id=3, priority=0))
    open_two(switch)
    for number in range(1, 4):
        for host in range(10, 250):
            switch.packet_in(2, arp(1, host, host))
            switch.packet_in(2, segment(host, 3, SYN, sport=1000 + number))
        switch.extension(alarm())
        switch.wait(lambda number=number: len(clamps(switch)) == number)
        switch.extension(wire.BufNormal(wire.OfpPort(3), 0, 0, 100_000_000, SDTCP, 0, 2, time.time_ns()))
        switch.packet_in(2, segment(2, 3, 0x11, sport=1002))  # the burst flow ends, if it has not ended yet
        switch.wait(lambda number=number: len(switch.flow_mods(table_id=0, command=4)) == number)
    assert "Traceback" not in controller.stop().replace("KeyboardInterrupt", "")
    assert [row.kind for row in controller.rows(AlarmRow)] == ["alarm", "normal"] * 3


def test_a_new_controller_takes_over(start, connect, engine):
    first = start(engine)
    switch = connect(first)
    switch.wait(lambda: switch.flow_mods(table_id=3, priority=0))
    open_two(switch)
    switch.extension(alarm())
    switch.wait(lambda: clamps(switch))
    with closing(sqlite3.connect(first.database)) as database:
        count = "SELECT count(*) FROM clamps"
        wait_until(lambda: database.execute(count).fetchone()[0], "the clamp is written")
    first.stop(signal.SIGKILL)

    second = start(engine)
    switch = connect(second, hosts=[(mac(number), number) for number in (1, 2, 3)])
    switch.wait(lambda: switch.flow_mods(table_id=3, priority=0))
    stale = switch.wait(lambda: switch.flow_mods(table_id=0, command=3, cookie=SDTCP))
    assert stale[0].cookie_mask == 0xFFFF_FFFF_0000_0000
    deletes = [mod for mod in switch.flow_mods() if mod.command in (3, 4)]
    assert deletes == stale, "only SDTCP's own leftovers are deleted"
    switch.extension(alarm())
    (clamp,) = switch.wait(lambda: clamps(switch))
    assert clamp.match["ipv4_dst"] == "10.0.0.1", "the flow whose SYN only the first controller saw"
    second.stop()
    assert {row.lift_reason for row in second.rows(ClampRow)} == {"controller restarted", None}


def test_a_flow_that_only_the_switch_knows_is_slowed_down(start, connect, engine):
    """Its row was lost with a controller that was killed before it wrote it."""
    controller = start(engine)
    switch = connect(controller)
    switch.wait(lambda: extensions(switch, wire.FlowReportConfig))
    src, dst = IPv4Address("10.0.0.1"), IPv4Address("10.0.0.3")
    records = (
        wire.FlowRecord(wire.FlowKind.ACTIVE, dst, src, 80, 1001, 1, first_ns=1, last_ns=2 * 10**9),
        wire.FlowRecord(wire.FlowKind.ACTIVE, src, dst, 1001, 80, 3, first_ns=1, last_ns=2 * 10**9),
    )
    switch.extension(wire.FlowReport(records))
    switch.wait(lambda: extensions(switch, wire.PortConfig))
    wait_until(lambda: controller.rows(FlowRow), "two flows are written", lambda rows: len(rows) == 2)
    switch.extension(alarm())
    (clamp,) = switch.wait(lambda: clamps(switch))
    assert (clamp.match["ipv4_dst"], clamp.match["tcp_dst"]) == ("10.0.0.1", 1001)
    log = controller.stop()
    assert "Traceback" not in log.replace("KeyboardInterrupt", ""), log
    assert {(row.src, row.opened_ns) for row in controller.rows(FlowRow)} == {
        ("10.0.0.1", 1),
        ("10.0.0.3", 1),
    }


def test_a_flow_that_ended_without_a_controller_is_closed(start, connect, engine):
    first = start(engine)
    switch = connect(first)
    switch.wait(lambda: switch.flow_mods(table_id=3, priority=0))
    open_two(switch)
    wait_until(lambda: first.rows(FlowRow), "four flows are written", lambda rows: len(rows) == 4)
    first.stop(signal.SIGKILL)
    youngest_ns = max(row.opened_ns for row in first.rows(FlowRow))
    wait_until(lambda: time.time_ns() > youngest_ns + 2 * 10**9, "the youngest flow is two seconds old")

    second = start(engine)
    switch = connect(second)
    switch.wait(lambda: extensions(switch, wire.FlowReportConfig))
    src, dst = IPv4Address("10.0.0.1"), IPv4Address("10.0.0.3")
    ways = [(dst, src, 80, 1001, 1), (src, dst, 1001, 80, 3)]
    living = [wire.FlowRecord(wire.FlowKind.IDLE, *way, last_ns=youngest_ns) for way in ways]
    switch.extension(wire.FlowReport(tuple(living)))
    switch.extension(wire.FlowReport(roll_called=True))
    wait_until(lambda: any(row.close_reason for row in second.rows(FlowRow)), "a flow is closed")
    second.stop()
    assert {(row.src_port, row.dst_port): row.close_reason for row in second.rows(FlowRow)} == {
        (1001, 80): None, (80, 1001): None, (1002, 80): "missing", (80, 1002): "missing",
    }  # fmt: skip


def test_malformed_messages_do_not_end_the_session(start, connect, engine):
    controller = start(engine)
    switch = connect(controller)
    switch.wait(lambda: switch.flow_mods(table_id=3, priority=0))
    switch.packet_in(1, b"\x00")
    switch.packet_in(1, handshake(1, 3)[0][:50])
    switch.send(4, wire.encode_message(alarm())[8:60])
    switch.extension(wire.BufAlarm(wire.OfpPort(3), 30, 45_000, 0, crossing_ns=2**64 - 1))
    switch.send(PACKET_IN, b"\0" * 4)
    open_two(switch)
    switch.extension(alarm())
    assert switch.wait(lambda: clamps(switch))
    log = controller.stop()
    assert "frame dropped" in log
    assert "malformed message dropped" in log
    assert "impossible rate" in log


def test_a_locked_database_does_not_delay_the_controller(start, connect, engine):
    controller = start(engine)
    switch = connect(controller)
    switch.wait(lambda: switch.flow_mods(table_id=3, priority=0))
    with closing(sqlite3.connect(controller.database, isolation_level=None)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        open_two(switch)
        time.sleep(0.5)  # the writer waits for the lock during the alarm, which no state shows
        began = time.monotonic()
        switch.extension(alarm())
        switch.wait(lambda: clamps(switch))
        assert time.monotonic() - began < 1
        holder.execute("ROLLBACK")
    controller.stop()
    assert len(controller.rows(ClampRow)) == 1


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("WEIR_DB", "/proc/nowhere/weir.db", "weir: cannot write the flow database /proc/nowhere/weir.db"),
        ("WEIR_CONFIG", "/nonexistent.toml", "weir: /nonexistent.toml: cannot be read"),
    ],
)
def test_a_start_with_wrong_settings_ends_with_one_line(tmp_path, variable, value, message):
    environment = os.environ | {"WEIR_ENGINE": "ryu", "WEIR_DB": str(tmp_path / "x.db"), variable: value}
    command = [sys.executable, "-c", RYU, "--ofp-listen-host", "127.0.0.1", "fabric_app.app"]
    ended = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr


def test_sccp_s_entries_are_sent_and_those_of_absent_stages_deleted(start, connect, engine):
    controller = start(engine, apps=["fabric_app.app"])
    switch = connect(controller)
    switch.wait(lambda: switch.flow_mods(table_id=3, priority=0))
    assert {mod.cookie for mod in switch.flow_mods(command=3)} == {SDTCP, SCCP}
    other = connect(start(engine))
    other.wait(lambda: len(other.flow_mods(table_id=1, cookie=SCCP)) == 8)
    asked = {
        flags | wire.PortConfigFlags.ALLOWANCE
        for flags in (wire.PortConfigFlags.ALARM, wire.PortConfigFlags.WINDOW)
    }
    other.wait(lambda: {config.flags for config in extensions(other, wire.PortConfig)} == asked)


def extensions(switch, kind):
    """The messages of the extension of one kind that a switch got."""
    sent = [m for m in list(switch.received) if m[1] == 4 and wire.is_extension_message(m)]
    return [message for message in map(wire.decode_message, sent) if isinstance(message, kind)]
