"""Commands: obeyed, or refused with the reason."""

from dataclasses import replace

import pytest

from flowdb.flow import FiveTuple, Flow, Hop, PortKey
from flowdb.index import FlowIndex
from sdtcp_app.commands import CommandHandler, CommandRefused
from sdtcp_app.config import SdtcpSettings
from sdtcp_app.core import Sdtcp
from sdtcp_app.core_types import Alarm, Lift, Punish

PORT = PortKey(1, 2)
NAME = "10.0.0.1:1001>10.0.1.1:80"


def make_flow(number, key=None):
    key = key or FiveTuple("10.0.0.1", "10.0.1.1", 1000 + number, 80)
    return Flow(number, key, (Hop(1, 1, 2),), number, 1460, 9, sent_bytes=number)


@pytest.fixture
def desk():
    index = FlowIndex()
    core = Sdtcp(index, SdtcpSettings().parameters)
    desk = CommandHandler(core, index, lambda policy: SdtcpSettings().rank(desk.protected, policy))
    index.rank_by(SdtcpSettings().rank(desk.protected))
    core.on_switch(1, 0)
    for number in (1, 2):
        index.add(make_flow(number))
    index.add(make_flow(3, make_flow(1).key.reverse))
    desk.core, desk.index = core, index
    return desk


def first(desk):
    return [flow.id for flow in desk.index.candidates(PORT, 9)]


def test_punish_and_release(desk):
    obeyed = desk.obey("punish", {"flow": NAME, "window_bytes": 3000}, 0)
    assert [(one.flow.id, one.window_bytes) for one in obeyed.decisions] == [(1, 3000)]
    obeyed = desk.obey("release", {"flow": 1}, 0)
    assert obeyed.outcome == f"{NAME} released"
    assert isinstance(obeyed.decisions[0], Lift)
    with pytest.raises(CommandRefused, match="is not slowed down"):
        desk.obey("release", {"flow": "1"}, 0)


def test_protect_both_directions_and_release_them(desk):
    (punish,) = desk.core.on_alarm(Alarm(PORT, 45_000, 10**8), 0)
    assert isinstance(punish, Punish)
    obeyed = desk.obey("protect", {"flow": NAME}, 0)
    assert [lift.flow.id for lift in obeyed.decisions] == [1]
    assert first(desk) == [2]
    assert desk.obey("protect", {"flow": NAME, "on": False}, 0).outcome == f"{NAME} no longer protected"
    assert first(desk) == [1, 2, 3]


@pytest.mark.parametrize("protected", [1, 3])
@pytest.mark.parametrize("freed", [1, 3])
def test_protection_ends_in_both_directions_whichever_is_named(desk, protected, freed):
    desk.obey("protect", {"flow": protected}, 0)
    assert first(desk) == [2]
    desk.obey("protect", {"flow": freed, "on": False}, 0)
    assert first(desk) == [1, 2, 3]


@pytest.mark.parametrize(
    ("path", "said"),
    [((), "its path is unknown"), ((Hop(7, 1, 2),), "no switch on its path is connected and runs an agent")],
)
def test_a_flow_that_no_switch_can_slow_down_is_refused(desk, path, said):
    desk.index.add(replace(make_flow(4), path=path))
    with pytest.raises(CommandRefused, match=said):
        desk.obey("punish", {"flow": 4}, 0)
    assert not desk.core.is_punished(4)


@pytest.mark.parametrize("settings", [{"mode": "observe"}, {"act_for": ("10.9.0.0/16",)}])
def test_a_flow_outside_the_scope_is_not_said_to_be_slowed_down(desk, settings):
    desk.core.parameters = SdtcpSettings(**settings).parameters
    obeyed = desk.obey("punish", {"flow": 1}, 0)
    assert obeyed.outcome.startswith(f"{NAME} is only observed: no packet is changed for this command")
    assert [one.observed for one in obeyed.decisions] == [True]


def test_a_port_has_a_policy_of_its_own(desk):
    place = {"dpid": "0000000000000001", "port_no": 2}
    desk.obey("policy", place | {"policy": "largest-volume"}, 0)
    assert first(desk) == [3, 2, 1]
    assert desk.policies == {PORT: "largest-volume"}
    desk.rank_anew()
    assert first(desk) == [3, 2, 1]
    desk.obey("policy", place, 0)
    assert first(desk) == [1, 2, 3]
    assert desk.policies == {}


@pytest.mark.parametrize(
    ("kind", "arguments", "said"),
    [
        ("dance", {}, "dance: Input tag 'dance'"),
        ("release", {}, "release: flow: Field required"),
        ("release", {"flow": "10.0.0.1"}, "is not a flow"),
        ("release", {"flow": 99}, "no flow 99 is open"),
        ("release", {"flow": "10.9.9.9:1>10.0.0.2:2"}, "no flow 10.9.9.9:1>10.0.0.2:2 is open"),
        ("punish", {"flow": 1, "window_bytes": 0}, "window_bytes"),
        ("protect", {"flow": 1, "colour": 2}, "colour: Extra inputs are not permitted"),
        ("policy", {"dpid": "1", "port_no": 2, "policy": None}, "dpid"),
        ("policy", {"dpid": "0" * 16, "port_no": 2, "policy": "oldest"}, "unknown policy 'oldest'"),
    ],
)
def test_an_impossible_command_is_refused_with_the_reason(desk, kind, arguments, said):
    with pytest.raises(CommandRefused) as refused:
        desk.obey(kind, arguments, 0)
    assert said in str(refused.value)


@pytest.mark.parametrize("text", ["[fe80::1]:1000>[fe80::2]:80", "fe80::1:1000 > fe80::2:80"])
def test_a_flow_of_ipv6_is_read(text):
    assert FiveTuple.parse(text) == FiveTuple("fe80::1", "fe80::2", 1000, 80)


@pytest.mark.parametrize("text", ["", "a>b", "10.0.0.1:1>fe80::2:80", "10.0.0.1:70000>10.0.0.2:80"])
def test_a_wrong_name_of_a_flow_is_refused(text):
    with pytest.raises(ValueError, match="is not a flow"):
        FiveTuple.parse(text)
