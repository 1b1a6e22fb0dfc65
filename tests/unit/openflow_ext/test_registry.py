"""The extension as the engine's objects, JSON, bytes and events, on both engines and in both versions."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from openflow_ext import engine, registry, registry_classes, wire
from tests.support.openflow.installed_engine import FLOW_4, FLOW_6, WIRE_PORT, Engine

TO_SWITCH = (wire.PortConfig, wire.PortCountersRequest, wire.FlowReportConfig, wire.Arm)


def test_messages_serialize_to_the_bytes_of_wire(eng: Engine) -> None:
    for msg, message in eng.messages():
        msg.set_xid(9)
        msg.serialize()
        assert bytes(msg.buf) == eng.encode(message, xid=9)
        assert isinstance(msg, eng.parser.MsgBase)


def test_messages_survive_json(eng: Engine) -> None:
    for msg, message in eng.messages():
        text = json.dumps(msg.to_jsondict())
        again = eng.ofproto_parser.ofp_msg_from_jsondict(eng.datapath, json.loads(text))
        again.serialize()
        assert bytes(again.buf) == eng.encode(message)


def test_received_messages_are_engine_objects_with_an_event(eng: Engine) -> None:
    for sent, message in eng.messages():
        if type(message) not in TO_SWITCH:
            msg = eng.receive(eng.encode(message, xid=9))
            assert type(msg) is type(sent)
            assert msg.to_jsondict() == sent.to_jsondict()
            assert (msg.xid, msg.datapath) == (9, eng.datapath)
            assert msg.buf == eng.encode(message, xid=9)
            event = eng.ofp_event.ofp_msg_to_ev(msg)
            assert type(event) is getattr(eng.ofp_event, f"Event{type(msg).__name__}")


def test_failures_of_a_handler_are_logged_once_a_second(
    eng: Engine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, handler = engine.load("base.app_manager", eng.name).LOG, f"on_alarm of {eng.name} {eng.version}"
    for now_s, failures in ((100.0, 1000), (101.0, 1)):
        monkeypatch.setattr("openflow_ext.sessions.handler_errors.time.monotonic", lambda now_s=now_s: now_s)
        for _ in range(failures):
            try:
                raise KeyError("in_port")
            except KeyError:
                log.exception("%s failed in %s", "app", handler)
    log.error("%s failed in %s", "app", handler)
    text = f"app failed in {handler}"
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [text, f"{text} (999 more were not logged)", text]


def test_an_alarm_carries_a_port_of_the_engine(eng: Engine) -> None:
    msg = eng.receive(eng.encode(wire.BufAlarm(WIRE_PORT, 31, 46934, 10**8, n_i=4)))
    assert isinstance(msg.port, eng.parser.OFPPort)
    assert msg.port.to_jsondict() == eng.port().to_jsondict()
    assert (msg.port_buf_pkts, msg.port_buf_bytes, msg.port_rate_bps, msg.n_i) == (31, 46934, 10**8, 4)


def test_a_flow_report_carries_records_with_addresses(eng: Engine) -> None:
    msg = eng.receive(eng.encode(wire.FlowReport((FLOW_4, FLOW_6), lost=2)))
    assert (msg.records, msg.lost) == ((FLOW_4, FLOW_6), 2)
    shown = msg.to_jsondict()["OFPFlowReport"]["records"]
    assert [record["OFPFlowRecord"]["src"] for record in shown] == ["10.0.0.2", "2001:db8::2"]


def test_invalid_addresses_in_json_are_refused(eng: Engine) -> None:
    jsondict = eng.parser.OFPFlowReport(eng.datapath, (FLOW_4,)).to_jsondict()
    jsondict["OFPFlowReport"]["records"][0]["OFPFlowRecord"]["src"] = "10.0.0.256"
    with pytest.raises(wire.BadValue, match=r"10\.0\.0\.256"):
        eng.ofproto_parser.ofp_msg_from_jsondict(eng.datapath, jsondict)


def instruction(eng: Engine, actions: list[Any]) -> Any:
    return eng.parser.OFPInstructionActions(eng.ofproto.OFPIT_APPLY_ACTIONS, actions)


def test_actions_survive_bytes_and_json_among_other_actions(eng: Engine) -> None:
    parser = eng.parser
    ours = eng.actions()
    nicira = parser.NXActionRegLoad(31, "reg0", 1)
    metered = parser.NXActionController2(max_len=192, reason=1, userdata=[1, 2, 3, 4, 5], meter_id=7)
    unknown = parser.OFPActionExperimenterUnknown(0x1234, b"12345678")
    actions = [*(action for action, _ in ours), nicira, metered, unknown, parser.OFPActionOutput(1)]
    before = instruction(eng, actions)
    buf = bytearray()
    before.serialize(buf, 0)
    assert b"".join(wire.encode_action(action) for _, action in ours) in bytes(buf)
    after = parser.OFPInstructionActions.parser(bytes(buf), 0)
    assert [type(action) for action in after.actions] == [type(action) for action in actions]
    assert after.to_jsondict() == before.to_jsondict()
    jsondict = json.loads(json.dumps(before.to_jsondict()))
    copy = bytearray()
    parser.OFPInstructionActions.obj_from_jsondict(jsondict).serialize(copy, 0)
    assert copy == buf


def test_the_action_controller_has_the_meter_of_open_vswitch(eng: Engine) -> None:
    """The same bytes as of ``ovs-ofctl add-flow br0 'actions=controller(max_len=192,meter_id=7)'``."""
    data = bytes.fromhex("ffff00200000232000250000000000000000000800c000000005000800000007")
    action, buf = eng.parser.NXActionController2(max_len=192, meter_id=7), bytearray()
    action.serialize(buf, 0)
    assert bytes(buf) == data
    reply = eng.receive(eng.flow_stats(data))
    (read,) = reply.body[0].instructions[0].actions
    assert (type(read), read.max_len, read.meter_id) == (type(action), 192, 7)
    unlimited = bytearray()
    eng.parser.NXActionController2(max_len=192).serialize(unlimited, 0)
    assert bytes(unlimited) == bytes.fromhex("ffff00180000232000250000000000000000000800c00000")


def test_the_features_of_open_vswitchs_meters_are_read(eng: Engine) -> None:
    """In OpenFlow 1.5 Open vSwitch 3.1 leaves out the last 8 bytes of the structure."""
    body = bytes.fromhex("000b00000000000000040000000000020000000f08000000")
    msg = eng.receive(bytes([eng.version, 19]) + (8 + len(body)).to_bytes(2, "big") + bytes(4) + body)
    (features,) = msg.body
    assert (features.max_meter, features.band_types, features.capabilities) == (262_144, 2, 15)
    assert features.max_bands == 8


def test_actions_are_sent_in_a_flow_mod(eng: Engine) -> None:
    action = eng.parser.OFPActionModWindow(window=1536)
    flow_mod = eng.parser.OFPFlowMod(eng.datapath, instructions=[instruction(eng, [action])])
    flow_mod.serialize()
    assert bytes(flow_mod.buf).endswith(wire.encode_action(wire.ModWindow(1536)))


def test_flow_statistics_and_ryus_rest_app_show_the_actions(eng: Engine) -> None:
    ofctl = engine.load(f"lib.ofctl_{eng.suffix}", eng.name)
    reply = eng.receive(eng.flow_stats(wire.encode_action(wire.ModWindow(1536))))
    (inst,) = reply.body[0].instructions
    assert (inst.actions[0].window, inst.actions[0].alpha) == (1536, 5)
    if eng.version == wire.OFP13:
        assert ofctl.actions_to_str([inst]) == ["EXPERIMENTER: {experimenter:5727593, data:AAEFAAAABgA=}"]
    else:
        (shown,) = ofctl.instructions_to_str([inst])[0]["actions"]
        assert (shown["type"], shown["window"], shown["alpha"]) == ("EXPERIMENTER", 1536, 5)


GOOD_ACTION = wire.encode_action(wire.ModWindow(1536))
BAD_ACTIONS = [
    GOOD_ACTION[:10] + b"\0" + GOOD_ACTION[11:],  # alpha 0
    GOOD_ACTION[:8] + b"\0\x63" + GOOD_ACTION[10:],  # subtype 99
    GOOD_ACTION[:2] + b"\0\0" + GOOD_ACTION[4:],  # length 0, on which an engine loops forever
    GOOD_ACTION[:2] + b"\0\x18" + GOOD_ACTION[4:],  # length past the end
]
ALARM = wire.BufAlarm(WIRE_PORT, 31, 46934, 10**8)
COUNTERS = wire.PortCountersReply((wire.PortCountersRecord(1),))
MALFORMED: dict[str, tuple[wire.Message, Any]] = {
    "cut": (ALARM, lambda data: data[:80]),
    "no exp_type": (ALARM, lambda data: data[:12]),
    "unknown exp_type": (ALARM, lambda data: data[:15] + b"\x63" + data[16:]),
    "to a switch": (wire.PortConfig(1), lambda data: data),
    "cut counters": (COUNTERS, lambda data: data[:40]),
    "cut record": (wire.FlowReport((FLOW_4,)), lambda data: data[:100]),
    "bad kind": (wire.FlowReport((FLOW_4,)), lambda data: data[:24] + b"\x09" + data[25:]),
    "bad reflex": (wire.Reflex(3, 0, True), lambda data: data[:24] + b"\2" + data[25:]),
}


def malformed(eng: Engine, fault: str) -> bytes:
    """A message with that fault; its header states the right length."""
    message, damage = MALFORMED[fault]
    data: bytes = damage(eng.encode(message))
    return data[:2] + len(data).to_bytes(2, "big") + data[4:]


@pytest.mark.parametrize("action", BAD_ACTIONS)
def test_message_with_a_malformed_action_is_dropped(
    eng: Engine, action: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    assert eng.receive(eng.flow_stats(action)) is None
    assert registry.malformed == {0x2A: 1}
    assert "switch 000000000000002a at ('127.0.0.1', 6653): malformed message dropped" in caplog.text


@pytest.mark.parametrize("fault", MALFORMED)
def test_malformed_message_is_counted_logged_and_dropped(
    eng: Engine, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert eng.receive(malformed(eng, fault)) is None
    assert registry.malformed == {0x2A: 1}
    (record,) = caplog.records
    assert record.message.startswith(
        "switch 000000000000002a at ('127.0.0.1', 6653): malformed message dropped: "
    )


def test_a_malformed_message_before_the_dpid_is_known_is_counted_under_none(
    eng: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    eng.datapath.id = None
    assert eng.receive(malformed(eng, "cut")) is None
    assert registry.malformed == {None: 1}
    assert "switch unknown at" in caplog.text


def test_the_engine_parses_other_experimenters_and_errors(eng: Engine) -> None:
    other = eng.receive(bytes([eng.version]) + b"\4\0\x14\0\0\0\0\0\0\x23\x20\0\0\0\x63data")
    assert (type(other), other.experimenter, other.data) == (eng.parser.OFPExperimenter, 0x2320, b"data")
    error = eng.receive(eng.encode(wire.ExperimenterError(wire.ErrorCode.BAD_PORT, bytes(8))))
    assert (error.experimenter, error.exp_type) == (wire.WEIR_EXPERIMENTER_ID, wire.ErrorCode.BAD_PORT)
    assert registry.malformed == {}


@pytest.mark.parametrize(
    "build",
    [
        lambda parser: parser.OFPActionModWindow(window=-1),
        lambda parser: parser.OFPActionModWindow(window=1, alpha=0),
        lambda parser: parser.OFPPortCountersRequest(None, 1, 3),
    ],
)
def test_invalid_values_are_refused_when_the_object_is_built(eng: Engine, build: Any) -> None:
    with pytest.raises(wire.BadValue):
        build(eng.parser)


@pytest.mark.parametrize("arguments", [{"window_bytes": 1}, {"window": 1, "beta": 2}, {}])
def test_wrong_argument_names_are_refused(eng: Engine, arguments: dict[str, int]) -> None:
    with pytest.raises(TypeError):
        eng.parser.OFPActionModWindow(**arguments)


def test_install_is_idempotent(eng: Engine) -> None:
    before = (eng.parser.OFPBufAlarm, eng.ofp_event.EventOFPBufAlarm, eng.parser.OFPActionModWindow)
    registry.install(eng.name)
    assert before == (eng.parser.OFPBufAlarm, eng.ofp_event.EventOFPBufAlarm, eng.parser.OFPActionModWindow)
    assert eng.receive(eng.encode(ALARM)).port_buf_pkts == 31
    assert [field.name for field in eng.ofproto.oxm_types].count("tcp_window") == 1


PRIVATE_NAMES = {
    "_create_ofp_msg_ev_class": lambda eng: eng.ofp_event,
    "_serialize_body": lambda eng: eng.parser.MsgBase,
}
UNDOCUMENTED_NAMES = {
    "ONFExperimenter": lambda eng: engine.load("ofproto.oxm_fields", eng.name),
    "OFPPropUnknown": lambda eng: Engine(eng.name, wire.OFP15).parser,
    "OFPPortDescPropEthernet": lambda eng: Engine(eng.name, wire.OFP15).parser,
    "parse": lambda eng: Engine(eng.name, wire.OFP15).parser.OFPPropBase,
    "generate": lambda eng: engine.load("ofproto.oxm_fields", eng.name),
    "msg_pack_into": lambda eng: engine.load("lib.pack_utils", eng.name),
    "to_jsondict": lambda eng: eng.parser.MsgBase,
    "from_jsondict": lambda eng: eng.parser.MsgBase,
    "cls_msg_type": lambda eng: eng.parser.OFPExperimenter,
    "msg_parser": lambda eng: eng.parser,
    "namedtuple": lambda eng: eng.ofproto_parser,
    "parser": lambda eng: eng.parser.OFPAction,
    "register_action_type": lambda eng: eng.parser.OFPAction,
    "register_msg_parser": lambda eng: eng.ofproto_parser,
    "cls_action_len": lambda eng: eng.parser.OFPActionExperimenter,
    "set_buf": lambda eng: eng.parser.MsgBase,
    "set_headers": lambda eng: eng.parser.MsgBase,
}


@pytest.mark.parametrize("name", [*PRIVATE_NAMES, *UNDOCUMENTED_NAMES])
def test_canary_the_engine_still_has_the_names_that_the_registry_uses(eng: Engine, name: str) -> None:
    assert callable(getattr((PRIVATE_NAMES | UNDOCUMENTED_NAMES)[name](eng), name, None)) or name.startswith(
        "cls_"
    )
    assert hasattr((PRIVATE_NAMES | UNDOCUMENTED_NAMES)[name](eng), name)


def test_canary_knows_every_private_name() -> None:
    source = "".join(Path(module.__file__).read_text() for module in (registry, registry_classes))
    own = {*vars(registry), *vars(registry_classes), "registry_classes", "_asdict"}
    used = set(re.findall(r"(?:\.|def )(_(?!_)\w+)", source)) - own
    assert used == set(PRIVATE_NAMES)
