"""Answers to PORT_CONFIG and the port counters, and the ports behind them."""

from __future__ import annotations

import dataclasses
import ipaddress
import logging
import time
from collections.abc import Collection, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from openflow_ext import wire
from openflow_ext.switch.config import SwitchSettings
from openflow_ext.switch.dataplane.interface import (
    DataPlaneError,
    NoShare,
    PortSettings,
    QueueEvent,
    QueueEventKind,
    TableFull,
    UnsupportedMatch,
)
from openflow_ext.switch.dataplane.rules import WindowOp
from openflow_ext.switch.errors import Declined
from openflow_ext.switch.openflow import extension_requests
from openflow_ext.switch.openflow import messages as of
from openflow_ext.switch.ovs.egress import DEFAULT_RATE_BPS, Egress
from openflow_ext.switch.ovs.ports import Link, Ports
from openflow_ext.wire import ErrorCode, MarkMode, PortConfigFlags
from tests.support.agent.fake_data_plane import FakeDataPlane
from tests.support.openflow.flow_mods import ofproto, parsed

XID = 0x1234
MBIT = 1_000_000
LINKS = (Link(11, "s1-eth1", 1), Link(12, "s1-eth2", 2))
ALARM, WINDOW, MARK, READ, ALLOWANCE = (
    PortConfigFlags.ALARM,
    PortConfigFlags.WINDOW,
    PortConfigFlags.MARK,
    PortConfigFlags.READ,
    PortConfigFlags.ALLOWANCE,
)
OBSERVE, SWITCH = PortConfigFlags.OBSERVE, PortConfigFlags.SWITCH
BY_HOST = PortConfigFlags.BY_HOST
SHARED = WINDOW | ALLOWANCE | BY_HOST


class Bench:
    def __init__(self) -> None:
        self.plane = FakeDataPlane()
        self.listened: list[wire.FlowReportConfig] = []
        self.is_slave = False
        self.switched: list[bool] = []
        self.ports = Ports(1, self.plane, switched=self.switched.append)
        self.ports.sync(LINKS, {11: Egress(100 * MBIT)})

    def sync(self, links: Collection[Link], egresses: Mapping[int, Egress]) -> None:
        """The bridge has these ports now."""
        self.ports.detach_missing(links)
        self.ports.sync(links, egresses)

    def ask_raw(self, message: bytes) -> bytes:
        try:
            answer = extension_requests.answer(
                message, self.ports, self.plane, self.listened.append, self.is_slave
            )
        except Declined as declined:
            answer = declined.answer
        assert of.HEADER.unpack_from(answer)[3] == XID
        return answer

    def ask(self, message: wire.Message) -> Any:
        return wire.decode_message(self.ask_raw(wire.encode_message(message, xid=XID)))

    def configure(self, port_no: int, flags: PortConfigFlags, **fields: Any) -> Any:
        return self.ask(wire.PortConfig(port_no, flags, **fields))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_groups_of_settings_change_alone_and_the_reply_states_all(bench: Bench) -> None:
    bench.configure(1, ALARM, k_pkts=20, rtt_us=200, cookie=7, priority=3, common_rtt_us=99)
    reply = bench.configure(1, WINDOW, common_rtt_us=300, least_window_bytes=1024, k_pkts=1)
    assert reply == wire.PortConfigReply(
        1,
        ALARM | WINDOW,
        k_pkts=20,
        rtt_us=200,
        capacity_bps=100 * MBIT,
        common_rtt_us=300,
        least_window_bytes=1024,
        cookie=7,
        priority=3,
    )
    settings, capacity_bps = bench.plane.configured[11]
    assert settings == PortSettings(
        alarm=True, k_pkts=20, rtt_us=200, common_rtt_us=300, least_window_bytes=1024, cookie=7, priority=3
    )
    assert capacity_bps == 100 * MBIT
    off = bench.configure(1, ALARM, k_pkts=0)
    assert off.flags == WINDOW
    assert not bench.plane.configured[11][0].alarm


@pytest.mark.parametrize("flags", [READ, READ | ALARM, PortConfigFlags.NONE])
def test_reading_changes_nothing(bench: Bench, flags: PortConfigFlags) -> None:
    before = dict(bench.plane.configured)
    reply = bench.configure(1, flags, k_pkts=20, rtt_us=200)
    assert (reply.k_pkts, reply.capacity_bps) == (0, 100 * MBIT)
    assert bench.plane.configured == before


def test_any_port_sets_present_and_future_ports(bench: Bench) -> None:
    reply = bench.configure(of.OFPP_ANY, WINDOW, common_rtt_us=300)
    assert (reply.port_no, reply.capacity_bps) == (of.OFPP_ANY, 100 * MBIT)
    bench.sync((*LINKS, Link(13, "s1-eth3", 3)), {11: Egress(100 * MBIT)})
    assert {i: s.common_rtt_us for i, (s, _) in bench.plane.configured.items()} == {11: 300, 12: 300, 13: 300}


def test_a_port_corrects_its_allowance_while_the_window_s_settings_ask_for_it(bench: Bench) -> None:
    assert bench.configure(1, WINDOW | ALLOWANCE, common_rtt_us=300).flags == WINDOW | ALLOWANCE
    assert bench.plane.configured[11][0].corrects_allowance
    assert bench.configure(1, ALARM, k_pkts=20, rtt_us=200).flags == ALARM | WINDOW | ALLOWANCE
    assert bench.configure(2, ALARM | ALLOWANCE, k_pkts=20, rtt_us=200).flags == ALARM | ALLOWANCE
    assert bench.configure(1, WINDOW, common_rtt_us=300).flags == ALARM | WINDOW
    assert not bench.plane.configured[11][0].corrects_allowance


def test_a_port_observes_its_share_until_the_window_s_settings_no_longer_ask_for_it(bench: Bench) -> None:
    assert bench.configure(1, WINDOW | OBSERVE, common_rtt_us=300).flags == WINDOW | OBSERVE
    assert bench.plane.configured[11][0].observes_share
    assert bench.configure(1, ALARM, k_pkts=20, rtt_us=200).flags == ALARM | WINDOW | OBSERVE
    assert bench.configure(1, WINDOW, common_rtt_us=300).flags == ALARM | WINDOW
    assert not bench.plane.configured[11][0].observes_share


def test_switch_turns_present_and_future_ports_off_and_on(bench: Bench) -> None:
    bench.configure(1, WINDOW, common_rtt_us=300)
    before = dict(bench.plane.configured)

    reply = bench.configure(of.OFPP_ANY, SWITCH, off=True)
    bench.sync((*LINKS, Link(13, "s1-eth3", 3)), {11: Egress(100 * MBIT)})

    assert (reply.flags, reply.off) == (SWITCH, True)
    assert bench.plane.observing == {11: True, 12: True, 13: True}
    assert bench.switched == [True]
    assert bench.configure(1, WINDOW, common_rtt_us=300).off
    assert bench.configure(of.OFPP_ANY, READ | SWITCH, off=False).off

    assert not bench.configure(of.OFPP_ANY, SWITCH, off=False).off
    assert bench.plane.observing == {11: False, 12: False, 13: False}
    assert {11: bench.plane.configured[11], 12: bench.plane.configured[12]} == before
    assert bench.switched == [True, False]


def test_a_slave_turns_nothing_off(bench: Bench) -> None:
    bench.is_slave = True
    whole = wire.encode_message(wire.PortConfig(of.OFPP_ANY, SWITCH, off=True), xid=XID)
    assert parsed(bench.ask_raw(whole)).code == ofproto.OFPBRC_IS_SLAVE
    assert not bench.ports.off


@pytest.mark.parametrize(
    ("config", "field"),
    [
        (wire.PortConfig(1, OBSERVE), "flags"),
        (wire.PortConfig(1, SWITCH), "port_no"),
        (wire.PortConfig(1, BY_HOST | WINDOW, common_rtt_us=300), "flags"),
        (wire.PortConfig(1, BY_HOST | ALLOWANCE | ALARM, k_pkts=20, rtt_us=200), "flags"),
        (wire.PortConfig(1, SHARED | PortConfigFlags.OMIT_ACTIVE_SENDERS, common_rtt_us=300), "flags"),
    ],
)
def test_some_flags_need_others_or_exclude_them(bench: Bench, config: wire.PortConfig, field: str) -> None:
    assert bench.ask(config).code == ErrorCode.BAD_VALUE, field


def test_a_port_shares_by_host_until_the_next_window_settings(bench: Bench) -> None:
    assert bench.configure(1, SHARED, common_rtt_us=300).flags == SHARED
    assert bench.plane.configured[11][0].by_host
    assert bench.configure(1, ALARM, k_pkts=20, rtt_us=200).flags == ALARM | SHARED
    assert bench.configure(1, WINDOW | ALLOWANCE, common_rtt_us=300).flags == ALARM | WINDOW | ALLOWANCE
    assert not bench.plane.configured[11][0].by_host


def test_the_alarm_s_settings_do_not_end_a_fixed_common_rtt(bench: Bench) -> None:
    bench.configure(1, WINDOW, common_rtt_us=300)
    assert bench.configure(1, ALARM | ALLOWANCE, k_pkts=20, rtt_us=200).flags == ALARM | WINDOW
    assert bench.configure(1, WINDOW, common_rtt_us=0).flags == ALARM
    assert bench.configure(1, ALARM | ALLOWANCE, k_pkts=20, rtt_us=200).flags == ALARM | ALLOWANCE


def test_a_port_omits_what_the_last_window_settings_say(bench: Bench) -> None:
    omits = PortConfigFlags.OMIT_FITTING | PortConfigFlags.OMIT_TWO_SEGMENTS
    assert bench.configure(1, WINDOW | omits, common_rtt_us=300).flags == WINDOW | omits
    assert bench.plane.configured[11][0].omits == omits
    assert bench.configure(1, ALARM, k_pkts=20, rtt_us=200).flags == ALARM | WINDOW | omits
    assert bench.configure(1, WINDOW, common_rtt_us=300).flags == ALARM | WINDOW
    assert not bench.plane.configured[11][0].omits


def test_a_port_without_a_common_rtt_omits_what_the_last_allowance_settings_say(bench: Bench) -> None:
    omits = PortConfigFlags.OMIT_FITTING
    asked = {"k_pkts": 20, "rtt_us": 200}
    assert bench.configure(1, ALARM | ALLOWANCE | omits, **asked).flags == ALARM | ALLOWANCE | omits
    assert bench.configure(1, ALARM | ALLOWANCE, **asked).flags == ALARM | ALLOWANCE
    assert bench.configure(1, WINDOW, common_rtt_us=300).flags == ALARM | WINDOW
    assert bench.configure(1, ALARM | ALLOWANCE | omits, **asked).flags == ALARM | WINDOW


def test_the_controller_s_capacity_overrides_the_port_s(bench: Bench) -> None:
    assert bench.configure(1, WINDOW, capacity_bps=5 * MBIT).capacity_bps == 5 * MBIT
    bench.sync(LINKS, {11: Egress(50 * MBIT), 12: Egress(60 * MBIT)})
    assert bench.plane.configured[11][1] == 5 * MBIT
    assert bench.plane.configured[12][1] == 60 * MBIT
    assert bench.configure(1, WINDOW, capacity_bps=0).capacity_bps == 50 * MBIT


@pytest.mark.parametrize(
    ("flags", "fields"),
    [
        (ALARM, {"k_pkts": 20, "rtt_us": 0}),
        (WINDOW, {"least_window_bytes": 1 << 31}),
        (ALLOWANCE, {}),
        (ALLOWANCE, {"common_rtt_us": 600}),
        (PortConfigFlags.OMIT_CROWD, {"common_rtt_us": 600}),
        (ALARM | PortConfigFlags.OMIT_PSH, {"k_pkts": 20, "rtt_us": 200}),
        (WINDOW | ALLOWANCE, {"common_rtt_us": 0}),
        (MARK, {"mark_mode": wire.MarkMode.STEP}),
        (MARK, {"mark_mode": wire.MarkMode.RAMP, "mark_min_pkts": 9, "mark_max_pkts": 9}),
    ],
)
def test_invalid_settings_are_refused(bench: Bench, flags: PortConfigFlags, fields: dict[str, Any]) -> None:
    before = dict(bench.plane.configured)
    assert bench.configure(1, flags, **fields).code == ErrorCode.BAD_VALUE
    assert bench.plane.configured == before


def test_unknown_ports_and_ports_without_programs_are_refused(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    assert bench.configure(9, ALARM).code == ErrorCode.BAD_PORT
    assert bench.configure(ofproto.OFPP_LOCAL, ALARM).code == ErrorCode.BAD_PORT
    assert bench.ask(wire.PortCountersRequest(9)).code == ErrorCode.BAD_PORT
    bench.plane.refuses.add(13)
    bench.sync((*LINKS, Link(13, "s1-eth3", 3)), {})
    assert "s1-eth3 (3) cannot carry the programs: s1-eth3: no XDP" in caplog.text
    assert bench.configure(3, WINDOW).code == ErrorCode.NO_DATAPLANE
    assert bench.configure(of.OFPP_ANY, WINDOW, common_rtt_us=1).common_rtt_us == 1
    bench.sync((*LINKS, Link(13, "s1-eth3", 3)), {})
    assert caplog.text.count("no XDP") == 1
    bench.plane.refuses.clear()
    bench.sync((*LINKS, Link(13, "s1-eth3", 3)), {})
    assert bench.plane.configured[13][0].common_rtt_us == 1


def entry(number: int, **fields: Any) -> wire.ArmEntry:
    ends = ipaddress.IPv4Address("10.0.0.1"), ipaddress.IPv4Address("10.0.0.2")
    return wire.ArmEntry(*ends, 80, number, **{"window_bytes": 1536, **fields})


def test_arm_replaces_the_armed_entries_of_a_port(bench: Bench) -> None:
    def arm(*entries: wire.ArmEntry) -> bytes:
        message = wire.encode_message(wire.Arm(1, entries), xid=XID)
        return extension_requests.answer(message, bench.ports, bench.plane, bench.listened.append, False)

    assert arm(entry(1, cookie=7, priority=9, hard_timeout_s=3), entry(2, alpha=2, table_id=1)) == b""
    first, second = bench.plane.armings[11]
    assert (first.match.exact, first.window_op, first.window_bytes) == (True, WindowOp.MOD_WINDOW, 1536)
    assert (first.cookie, first.priority, first.hard_timeout_s) == (7, 9, 3)
    assert (second.match.dst_port, second.alpha, second.table_id) == (2, 2, 1)
    assert bench.ports.numbered(1).armed == (first, second)
    assert arm() == b""
    assert bench.plane.armings[11] == []


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (wire.Arm(9, (entry(1),)), ErrorCode.BAD_PORT),
        (wire.Arm(of.OFPP_ANY, (entry(1),)), ErrorCode.BAD_PORT),
        (wire.Arm(1, (entry(1, window_bytes=0),)), ErrorCode.BAD_VALUE),
        (wire.Arm(1, (entry(1, window_bytes=1 << 31),)), ErrorCode.BAD_VALUE),
        (wire.Arm(1, (entry(1), entry(1, window_bytes=7))), ErrorCode.BAD_VALUE),
    ],
)
def test_invalid_armed_entries_are_refused(bench: Bench, message: wire.Arm, code: ErrorCode) -> None:
    assert bench.ask(message).code == code
    assert bench.plane.armings == {}


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (TableFull("full"), (ofproto.OFPET_FLOW_MOD_FAILED, ofproto.OFPFMFC_TABLE_FULL)),
        (UnsupportedMatch("no"), (0xFFFF, ErrorCode.BAD_VALUE)),
        (DataPlaneError("broken"), (0xFFFF, ErrorCode.NO_DATAPLANE)),
    ],
)
def test_errors_of_the_data_plane_refuse_an_arm(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, failure: Exception, error: tuple[int, int]
) -> None:
    def refuse(*_: Any) -> None:
        raise failure

    monkeypatch.setattr(bench.plane, "arm", refuse)
    refusal = bench.ask_raw(wire.encode_message(wire.Arm(1, (entry(1),)), xid=XID))
    assert (int.from_bytes(refusal[8:10], "big"), int.from_bytes(refusal[10:12], "big")) == error
    assert bench.ports.numbered(1).armed == ()


def test_a_slave_can_read_but_not_change(bench: Bench) -> None:
    bench.is_slave = True
    for request in (wire.PortConfig(1, ALARM, k_pkts=1, rtt_us=1), wire.Arm(1, (entry(1),))):
        refusal = parsed(bench.ask_raw(wire.encode_message(request, xid=XID)))
        assert (refusal.type, refusal.code) == (ofproto.OFPET_BAD_REQUEST, ofproto.OFPBRC_IS_SLAVE)
    assert bench.plane.armings == {}
    assert bench.configure(1, READ).k_pkts == 0
    assert bench.ask(wire.PortCountersRequest()).records


def test_unknown_and_malformed_messages_are_answered_with_an_error(bench: Bench) -> None:
    whole = wire.encode_message(wire.PortConfig(1, ALARM, k_pkts=1, rtt_us=1), xid=XID)
    unknown = parsed(bench.ask_raw(whole[:12] + b"\0\0\0\x63" + whole[16:]))
    assert (unknown.type, unknown.code) == (ofproto.OFPET_BAD_REQUEST, ofproto.OFPBRC_BAD_EXP_TYPE)
    short = whole[:-8]
    short = short[:2] + len(short).to_bytes(2, "big") + short[4:]
    refusal = wire.decode_message(bench.ask_raw(short))
    assert refusal == wire.ExperimenterError(ErrorCode.BAD_MESSAGE, short[:64])
    alarm = wire.encode_message(wire.BufAlarm(wire.OfpPort(1), 1, 1, 1), xid=XID)
    assert parsed(bench.ask_raw(alarm)).code == ofproto.OFPBRC_BAD_EXP_TYPE


@given(st.binary(max_size=100), st.sampled_from([4, 18]))
def test_hostile_bytes_get_an_answer(body: bytes, of_type: int) -> None:
    logging.getLogger("openflow_ext").setLevel(logging.CRITICAL)
    head = b"\x00\x57\x65\x69" if of_type == 4 else b"\xff\xff\0\0\0\0\0\0\x00\x57\x65\x69"
    message = of.HEADER.pack(4, of_type, 8 + len(head) + len(body), XID) + head + body
    try:
        assert Bench().ask_raw(message)
    finally:
        logging.getLogger("openflow_ext").setLevel(logging.NOTSET)


def test_counters_are_reported_for_one_port_or_all(bench: Bench) -> None:
    one = bench.ask(wire.PortCountersRequest(2))
    flags = wire.PortCountersFlags.ATTACHED | wire.PortCountersFlags.ALARM_UP
    assert one.records == (wire.PortCountersRecord(2, n_i=12, flags=flags, capacity_bps=DEFAULT_RATE_BPS),)
    every = bench.ask(wire.PortCountersRequest())
    assert [record.port_no for record in every.records] == [1, 2]
    assert not every.more


def test_counters_of_many_ports_come_in_several_messages() -> None:
    bench = Bench()
    bench.sync([Link(1000 + n, f"p{n}", n) for n in range(1, 601)], {})
    data = bench.ask_raw(wire.encode_message(wire.PortCountersRequest(), xid=XID))
    parts = [wire.decode_message(part) for _, part in of.Framer(frozenset({19})).feed(data)]
    assert [len(part.records) for part in parts] == [wire.PORT_COUNTERS_MAX, 600 - wire.PORT_COUNTERS_MAX]
    assert [part.more for part in parts] == [True, False]


def test_a_bridge_without_ports_reports_no_counters() -> None:
    bench = Bench()
    bench.sync([], {})
    assert bench.ask(wire.PortCountersRequest()) == wire.PortCountersReply()


# -- ports that come and go --------------------------------------------------------------------------


def test_a_port_that_returns_as_another_device_is_attached_again(bench: Bench) -> None:
    bench.configure(1, WINDOW, common_rtt_us=300)
    bench.sync(LINKS[1:], {})
    assert bench.plane.attached() == {12: 1}
    bench.sync((Link(21, "s1-eth1", 1), LINKS[1]), {21: Egress(7 * MBIT)})
    assert bench.plane.ports[21] == ("s1-eth1", 1, 1)
    assert bench.plane.configured[21] == (PortSettings(), 7 * MBIT)
    assert bench.ports.numbered(1).link.ifindex == 21


def test_a_port_whose_number_changes_keeps_its_settings(bench: Bench) -> None:
    bench.configure(1, WINDOW, common_rtt_us=300)
    bench.sync((Link(11, "s1-eth1", 9), LINKS[1]), {})
    assert bench.plane.ports[11] == ("s1-eth1", 1, 9)
    assert bench.plane.configured[11][0].common_rtt_us == 300


def test_a_port_can_move_to_another_bridge_and_back() -> None:
    """In either order of the two bridges."""
    plane = FakeDataPlane()
    bridges = Ports(1, plane), Ports(2, plane)
    for owner in (1, 2, 1):
        links = [LINKS if number == owner else () for number in (1, 2)]
        for ports, there in zip(bridges, links, strict=True):
            ports.detach_missing(there)
        for ports, there in zip(bridges, links, strict=True):
            ports.sync(there, {})
        assert plane.attached() == {11: owner, 12: owner}


def test_a_detach_that_fails_is_repeated(caplog: pytest.LogCaptureFixture) -> None:
    plane = FakeDataPlane()
    ports = Ports(1, plane)
    ports.sync(LINKS, {})
    plane.keeps = {11, 12}
    for _ in range(2):
        ports.detach_missing([])
        assert (len(ports), ports.unfinished, plane.attached()) == (0, True, {11: 1, 12: 1})
    assert caplog.text.count("Device or resource busy") == 2, "each port is logged once"
    plane.keeps.clear()
    plane.attach(12, "s1-eth2", 2, 1)
    ports.detach_missing([])
    assert (ports.unfinished, plane.attached()) == (False, {12: 2}), "another bridge has taken over port 12"


def test_programs_that_another_tool_detached_are_attached_again(caplog: pytest.LogCaptureFixture) -> None:
    plane = FakeDataPlane()
    ports = Ports(1, plane)
    ports.sync(LINKS, {})
    assert not ports.check_programs([11, 12, 13])
    plane.stripped = {12, 13}
    assert ports.check_programs([11, 12, 13])
    assert [port.attached for port in ports] == [True, False]
    assert ports.unfinished
    assert caplog.text.count("its programs were detached by another tool") == 1
    ports.sync(LINKS, {})
    assert (ports.unfinished, plane.stripped) == (False, {13})


def test_a_port_that_comes_back_before_it_was_detached_stays() -> None:
    plane = FakeDataPlane()
    ports = Ports(1, plane)
    ports.sync(LINKS, {})
    plane.keeps = {11}
    ports.detach_missing(LINKS[1:])
    plane.keeps.clear()
    ports.detach_missing(LINKS)
    ports.sync(LINKS, {})
    assert (ports.unfinished, plane.attached()) == (False, {11: 1, 12: 1})


def test_an_adopted_port_keeps_its_settings() -> None:
    plane = FakeDataPlane()
    plane.attach(11, "s1-eth1", 1, 1)
    plane.attach(99, "gone", 1, 5)
    earlier = PortSettings(alarm=True, k_pkts=20, rtt_us=200, cookie=7, priority=3)
    plane.configured[11] = (earlier, 5 * MBIT)
    ports = Ports(1, plane, adopted=[11, 99])
    ports.detach_missing(LINKS)
    ports.sync(LINKS, {11: Egress(3 * MBIT)})
    assert plane.configured[11] == (earlier, 3 * MBIT)
    assert plane.attached() == {11: 1, 12: 1}
    assert ports.in_force(1) == (earlier, 3 * MBIT)
    ports.configure(1, common_rtt_us=300)
    assert plane.configured[11] == (dataclasses.replace(earlier, common_rtt_us=300), 3 * MBIT)
    assert ports.in_force(2)[0] == PortSettings()


def test_the_end_of_an_alarm_releases_the_entries_that_an_earlier_agent_reported() -> None:
    plane = FakeDataPlane()
    plane.attach(11, "s1-eth1", 1, 1)
    plane.configure(11, PortSettings(), 5 * MBIT)
    plane.levels[11] = 3
    ports = Ports(1, plane, adopted=[11])
    ports.sync(LINKS, {})
    end = QueueEvent(11, QueueEventKind.REFLEX_OFF, 0, 0, 0, 0)
    assert [port.switched(end) for port in ports if port.link.ifindex == 11] == [range(3)]


def test_ports_have_the_agents_settings_until_a_controller_changes_them() -> None:
    plane = FakeDataPlane()
    marking = SwitchSettings(mark_pkts=20).port_settings
    ports = Ports(1, plane, settings=marking)
    ports.sync(LINKS, {})
    assert (marking.mark_mode, marking.mark_min_pkts) == (MarkMode.STEP, 20)
    assert ports.in_force(2)[0] == marking
    ports.configure(1, mark_mode=MarkMode.OFF)
    assert ports.in_force(1)[0].mark_mode == MarkMode.OFF
    assert SwitchSettings().port_settings == PortSettings()


def test_the_thresholds_of_dcudp_are_settings_of_the_agent() -> None:
    settings = SwitchSettings(mark_pkts=1, mark_all_pkts=15).port_settings
    assert settings == PortSettings(mark_mode=MarkMode.RAMP, mark_min_pkts=1, mark_max_pkts=15)
    for mark_pkts in (0, 15, 20):
        with pytest.raises(ValidationError, match="want 0 < mark_pkts < mark_all_pkts"):
            SwitchSettings(mark_pkts=mark_pkts, mark_all_pkts=15)


def test_ports_of_the_kernel_datapath_are_attached_as_such() -> None:
    plane = FakeDataPlane()
    ports = Ports(1, plane, kernel_datapath=True)
    ports.sync(LINKS, {})
    assert plane.in_kernel == {11, 12}


def test_the_programs_follow_a_change_of_the_datapath(bench: Bench) -> None:
    bench.configure(1, WINDOW, common_rtt_us=300)
    for in_kernel, expected in ((True, {11, 12}), (False, set[int]())):
        bench.ports.kernel_datapath = in_kernel
        bench.sync(LINKS, {})
        assert bench.plane.in_kernel == expected
    settings, capacity_bps = bench.plane.configured[11]
    assert (settings.common_rtt_us, capacity_bps) == (300, 100 * MBIT), "settings and rate stay in force"


# -- ports without a fair share ------------------------------------------------------------------------


def test_the_log_states_why_a_port_sets_no_fair_share(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "openflow_ext.switch.ovs.ports")  # because Mininet sets a level on new loggers
    bench.sync(LINKS, {11: Egress(lacks=NoShare.CAPACITY | NoShare.QUEUE), 12: Egress(lacks=NoShare.QUEUE)})
    assert "clamped" not in caplog.text, "nobody has asked for a share"
    bench.configure(wire.OFPP_ANY, PortConfigFlags.WINDOW, common_rtt_us=600)
    assert bench.plane.no_share == {11: NoShare.CAPACITY | NoShare.QUEUE, 12: NoShare.QUEUE}
    assert "ports s1-eth2 count flows but clamp none: they have no queue" in caplog.text
    bench.configure(1, PortConfigFlags.WINDOW, common_rtt_us=600, capacity_bps=MBIT)
    bench.ports.update({11: Egress(lacks=NoShare.CAPACITY), 12: Egress(), 99: Egress()})
    assert bench.plane.no_share == {11: NoShare.NONE, 12: NoShare.NONE}
    assert "ports s1-eth1, s1-eth2 set fair shares" in caplog.text


def test_refused_flows_suspend_the_fair_share_for_a_while(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now_s = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    bench.plane.refused = 9
    ports = Ports(1, bench.plane, adopted=[11, 12])
    ports.sync(LINKS, {})
    ports.configure(wire.OFPP_ANY, common_rtt_us=600)
    ports.distrust(bench.plane.untracked(), now_s)
    assert bench.plane.no_share == {11: NoShare.NONE, 12: NoShare.NONE}, "refused before the agent's time"
    for untracked, after_s, expected in (
        (10, 0, NoShare.TABLE),
        (10, 9, NoShare.TABLE),
        (10, 2, NoShare.NONE),
    ):
        bench.plane.refused, now_s = untracked, now_s + after_s
        ports.distrust(bench.plane.untracked(), now_s)
        assert bench.plane.no_share == {11: expected, 12: expected}
    assert caplog.text.count("raise [switch] max_flows") == 1


@pytest.mark.parametrize("reason", [*NoShare, NoShare.CAPACITY | NoShare.TABLE])
def test_each_reason_for_no_share_is_a_flag_of_the_counters(reason: NoShare) -> None:
    assert NoShare.of_flags(reason.as_flags() | wire.PortCountersFlags.ATTACHED) == reason
    assert len(reason.as_flags()) == len(reason)
