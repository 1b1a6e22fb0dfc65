"""Where a controller acts: switches, ports, networks and protected flows."""

from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_base.flow_rules import FlowRule
from app_base.scope import Scope, port_key
from app_base.settings import ScopeSettings
from flowdb.flow import FiveTuple, PortKey

KEY = FiveTuple("10.1.0.1", "10.2.0.2", 40_000, 80)
HERE = PortKey(1, 3)


@pytest.mark.parametrize(
    ("scope", "acts"),
    [
        (Scope(), True),
        (Scope(acts=False), False),
        (Scope(acts=False, switches=frozenset({1})), False),
        (Scope(switches=frozenset({1})), True),
        (Scope(switches=frozenset({2})), False),
        (Scope(ports=frozenset({HERE})), True),
        (Scope(ports=frozenset({PortKey(1, 4)})), False),
        (Scope(switches=frozenset({2}), ports=frozenset({HERE})), True),
        (Scope(networks=(ip_network("10.1.0.0/16"),)), True),
        (Scope(networks=(ip_network("10.2.0.0/16"),)), True),
        (Scope(networks=(ip_network("10.3.0.0/16"), ip_network("fd00::/8"))), False),
        (Scope(spared=(FlowRule(dst_port=80),)), False),
        (Scope(spared=(FlowRule(src_port=80),)), False),
        (Scope(spared=(FlowRule(src=ip_network("10.3.0.0/16")),)), True),
    ],
)
def test_a_controller_acts_on_a_flow_for_a_port_in_its_scope(scope: Scope, acts: bool) -> None:
    assert scope.acts_on(HERE, KEY) is acts


def test_later_ports_of_a_switch_are_in_the_scope_if_the_switch_is() -> None:
    assert Scope(switches=frozenset({1})).acts_at_switch(1)
    assert not Scope(ports=frozenset({HERE})).acts_at_switch(1)


@given(st.integers(0, 2**64 - 1), st.integers(1, 2**32 - 1))
def test_every_port_is_read_as_logs_write_it(dpid: int, port_no: int) -> None:
    port = PortKey(dpid, port_no)
    assert port_key(str(port)) == port
    assert ScopeSettings(act_at=(str(port), f"{dpid:016x}")).scope_if(acts=True) == Scope(
        switches=frozenset({dpid}), ports=frozenset({port})
    )


@pytest.mark.parametrize("text", ["1", "1:", "x:1", "1:0", f"{2**64:x}:1", "1:4294967296", "1:2:3"])
def test_a_text_that_is_no_port_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no port"):
        port_key(text)
