"""The extension in an engine's terms: objects, JSON, bytes, events. Each test runs on both engines."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from openflow_ext import _registry_classes, engine, registry, wire

PORT = (3, "0a:00:00:00:00:03", b"s1-eth3", 0, 4, 0, 0, 0, 0, 0, 0)
WIRE_PORT = wire.OfpPort(*PORT)  # type: ignore[arg-type]


class Engine:
    """An engine with the extension installed, and a datapath of OpenFlow 1.3."""

    def __init__(self, name: str) -> None:
        registry.install(name)
        self.parser: Any = engine.load("ofproto.ofproto_v1_3_parser", name)
        self.ofproto: Any = engine.load("ofproto.ofproto_v1_3", name)
        self.ofproto_parser: Any = engine.load("ofproto.ofproto_parser", name)
        self.ofp_event: Any = engine.load("controller.ofp_event", name)
        self.datapath = SimpleNamespace(
            ofproto=self.ofproto, ofproto_parser=self.parser, id=0x2A, address=("127.0.0.1", 6653)
        )

    def receive(self, data: bytes) -> Any:
        """What an engine's receive loop makes of a message."""
        header = wire.decode_header(data)
        return self.ofproto_parser.msg(
            self.datapath, header.version, header.type, header.length, header.xid, bytearray(data)
        )

    def messages(self) -> list[tuple[Any, wire.Message]]:
        """Each message as an app builds it, and what must go out."""
        parser, datapath = self.parser, self.datapath
        port = parser.OFPPort(*PORT)
        config = {"port_no": 3, "flags": 13, "k_pkts": 30, "mark_mode": 2, "cookie": 7}
        counters = range(len(fields(wire.PortCountersRecord)))
        record = wire.PortCountersRecord(*counters)  # type: ignore[arg-type]
        return [
            (
                parser.OFPBufAlarm(datapath, port, 31, 46934, 10**8, n_i=4),
                wire.BufAlarm(WIRE_PORT, 31, 46934, 10**8, n_i=4),
            ),
            (parser.OFPBufNormal(datapath, port, 1, 2, 3), wire.BufNormal(WIRE_PORT, 1, 2, 3)),
            (parser.OFPPortConfig(datapath, **config), wire.PortConfig(**config)),  # type: ignore[arg-type]
            (parser.OFPPortConfigReply(datapath, **config), wire.PortConfigReply(**config)),  # type: ignore[arg-type]
            (parser.OFPPortCountersRequest(datapath, 0, 3), wire.PortCountersRequest(3)),
            (
                parser.OFPPortCountersReply(datapath, [parser.OFPPortCounters(*counters)], flags=1),
                wire.PortCountersReply((record,), more=True),
            ),
        ]

    def actions(self) -> list[tuple[Any, wire.Action]]:
        parser = self.parser
        return [
            (parser.OFPActionModWindow(window=1536, alpha=3), wire.ModWindow(1536, 3)),
            (parser.OFPActionModWindow(1536), wire.ModWindow(1536, 5)),
            (parser.OFPActionIncrementNi(), wire.IncrementNi(wire.OFPP_ANY)),
            (parser.OFPActionDecrementNi(port=3), wire.DecrementNi(3)),
            (parser.OFPActionSetWindow(), wire.SetWindow(wire.FAIR_SHARE)),
            (parser.OFPActionSetWindow(value=2048), wire.SetWindow(2048)),
        ]


@pytest.fixture(params=engine.ENGINES)
def eng(request: pytest.FixtureRequest) -> Engine:
    registry.malformed.clear()
    return Engine(request.param)


def test_messages_serialize_as_wire_says(eng: Engine) -> None:
    for msg, message in eng.messages():
        msg.set_xid(9)
        msg.serialize()
        assert bytes(msg.buf) == wire.encode_message(message, xid=9)
        assert isinstance(msg, eng.parser.MsgBase)


def test_messages_go_through_json(eng: Engine) -> None:
    for msg, message in eng.messages():
        text = json.dumps(msg.to_jsondict())
        again = eng.ofproto_parser.ofp_msg_from_jsondict(eng.datapath, json.loads(text))
        again.serialize()
        assert bytes(again.buf) == wire.encode_message(message)


def test_received_messages_are_objects_with_an_event(eng: Engine) -> None:
    for sent, message in eng.messages():
        if type(message) not in (wire.PortConfig, wire.PortCountersRequest):
            msg = eng.receive(wire.encode_message(message, xid=9))
            assert type(msg) is type(sent)
            assert msg.to_jsondict() == sent.to_jsondict()
            assert (msg.xid, msg.datapath) == (9, eng.datapath)
            assert msg.buf == wire.encode_message(message, xid=9)
            event = eng.ofp_event.ofp_msg_to_ev(msg)
            assert type(event) is getattr(eng.ofp_event, f"Event{type(msg).__name__}")


def test_alarm_carries_the_engines_port(eng: Engine) -> None:
    msg = eng.receive(wire.encode_message(wire.BufAlarm(WIRE_PORT, 31, 46934, 10**8, n_i=4)))
    assert msg.port == eng.parser.OFPPort(*PORT)
    assert (msg.port_buf_pkts, msg.port_buf_bytes, msg.port_rate_bps, msg.n_i) == (31, 46934, 10**8, 4)


def instruction(eng: Engine, actions: list[Any]) -> Any:
    return eng.parser.OFPInstructionActions(eng.ofproto.OFPIT_APPLY_ACTIONS, actions)


def test_actions_go_through_bytes_and_json_beside_others(eng: Engine) -> None:
    parser = eng.parser
    ours = eng.actions()
    nicira = parser.NXActionRegLoad(31, "reg0", 1)
    unknown = parser.OFPActionExperimenterUnknown(0x1234, b"12345678")
    actions = [*(action for action, _ in ours), nicira, unknown, parser.OFPActionOutput(1)]
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


def test_actions_travel_in_a_flow_mod(eng: Engine) -> None:
    action = eng.parser.OFPActionModWindow(window=1536)
    flow_mod = eng.parser.OFPFlowMod(eng.datapath, instructions=[instruction(eng, [action])])
    flow_mod.serialize()
    assert bytes(flow_mod.buf).endswith(wire.encode_action(wire.ModWindow(1536)))


def flow_stats(eng: Engine, action: bytes) -> bytes:
    """A flow statistics reply with one entry of one action."""
    inner = (4).to_bytes(2, "big") + (8 + len(action)).to_bytes(2, "big") + bytes(4) + action
    entry = (56 + len(inner)).to_bytes(2, "big") + bytes(46) + b"\0\1\0\4\0\0\0\0" + inner
    body = b"\0\1\0\0\0\0\0\0" + entry
    return b"\4\x13" + (8 + len(body)).to_bytes(2, "big") + bytes(4) + body


def test_flow_statistics_show_our_actions_also_to_ryus_rest_app(eng: Engine) -> None:
    ofctl = engine.load("lib.ofctl_v1_3", eng.parser.__name__.split(".")[0])
    reply = eng.receive(flow_stats(eng, wire.encode_action(wire.ModWindow(1536))))
    (inst,) = reply.body[0].instructions
    assert (inst.actions[0].window, inst.actions[0].alpha) == (1536, 5)
    assert ofctl.actions_to_str([inst]) == ["EXPERIMENTER: {experimenter:5727593, data:AAEFAAAABgA=}"]


GOOD_ACTION = wire.encode_action(wire.ModWindow(1536))
BAD_ACTIONS = [
    GOOD_ACTION[:10] + b"\0" + GOOD_ACTION[11:],  # alpha 0
    GOOD_ACTION[:8] + b"\0\x63" + GOOD_ACTION[10:],  # subtype 99
    GOOD_ACTION[:2] + b"\0\0" + GOOD_ACTION[4:],  # length 0: an engine would never get past it
    GOOD_ACTION[:2] + b"\0\x18" + GOOD_ACTION[4:],  # length past the end
]
ALARM = wire.encode_message(wire.BufAlarm(WIRE_PORT, 31, 46934, 10**8))
BAD_MESSAGES = [
    ALARM[:2] + b"\0\x50" + ALARM[4:80],
    ALARM[:2] + b"\0\x0c" + ALARM[4:12],
    ALARM[:15] + b"\x63" + ALARM[16:],
    wire.encode_message(wire.PortConfig(1)),
    wire.encode_message(wire.PortCountersReply((wire.PortCountersRecord(1),)))[:2]
    + b"\0\x20"
    + bytes(4)
    + wire.encode_message(wire.PortCountersReply((wire.PortCountersRecord(1),)))[8:32],
]


@pytest.mark.parametrize("action", BAD_ACTIONS)
def test_message_with_a_malformed_action_is_dropped(
    eng: Engine, action: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    assert eng.receive(flow_stats(eng, action)) is None
    assert registry.malformed == {0x2A: 1}
    assert "switch 000000000000002a at ('127.0.0.1', 6653): malformed message dropped" in caplog.text


@pytest.mark.parametrize("data", BAD_MESSAGES)
def test_malformed_message_is_counted_logged_and_dropped(
    eng: Engine, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    assert eng.receive(data) is None
    assert registry.malformed == {0x2A: 1}
    (record,) = caplog.records
    assert record.message.startswith(
        "switch 000000000000002a at ('127.0.0.1', 6653): malformed message dropped: "
    )


def test_malformed_message_before_the_dpid_is_known(eng: Engine, caplog: pytest.LogCaptureFixture) -> None:
    eng.datapath.id = None
    assert eng.receive(BAD_MESSAGES[0]) is None
    assert registry.malformed == {None: 1}
    assert "switch unknown at" in caplog.text


def test_other_experimenters_and_errors_stay_the_engines(eng: Engine) -> None:
    other = eng.receive(b"\4\4\0\x14\0\0\0\0\0\0\x23\x20\0\0\0\x63data")
    assert (type(other), other.experimenter, other.data) == (eng.parser.OFPExperimenter, 0x2320, b"data")
    error = eng.receive(wire.encode_message(wire.ExperimenterError(wire.ErrorCode.BAD_PORT, bytes(8))))
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
def test_values_that_do_not_fit_are_refused_when_built(eng: Engine, build: Any) -> None:
    with pytest.raises(wire.BadValue):
        build(eng.parser)


@pytest.mark.parametrize("arguments", [{"window_bytes": 1}, {"window": 1, "beta": 2}, {}])
def test_wrong_arguments_are_refused(eng: Engine, arguments: dict[str, int]) -> None:
    with pytest.raises(TypeError):
        eng.parser.OFPActionModWindow(**arguments)


def test_install_is_idempotent(eng: Engine) -> None:
    before = (eng.parser.OFPBufAlarm, eng.ofp_event.EventOFPBufAlarm, eng.parser.OFPActionModWindow)
    registry.install(eng.parser.__name__.split(".")[0])
    assert before == (eng.parser.OFPBufAlarm, eng.ofp_event.EventOFPBufAlarm, eng.parser.OFPActionModWindow)
    assert eng.receive(ALARM).port_buf_pkts == 31


PRIVATE_NAMES = {
    "_create_ofp_msg_ev_class": lambda eng: eng.ofp_event,
    "_serialize_body": lambda eng: eng.parser.MsgBase,
}
UNDOCUMENTED_NAMES = {
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
    source = "".join(Path(module.__file__).read_text() for module in (registry, _registry_classes))
    own = {*vars(registry), *vars(_registry_classes), "_registry_classes", "_asdict"}
    used = set(re.findall(r"(?:\.|def )(_(?!_)\w+)", source)) - own
    assert used == set(PRIVATE_NAMES)
