"""Times of a switch whose clock differs from the controller's."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fabric_app.switch_clocks import SYNCHRONOUS_NS, SwitchClocks
from openflow_ext.wire import FlowKind, FlowRecord

HOUR_NS = 3_600_000_000_000
NOW_NS = 1_732_100_000_000_000_000
RECORD = FlowRecord(FlowKind.ACTIVE, IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2"), 1, 2, 3)


def seen(clocks: SwitchClocks, first_ns: int, last_ns: int, dpid: int = 1) -> tuple[int, int]:
    (record,) = clocks.in_our_time(dpid, [RECORD._replace(first_ns=first_ns, last_ns=last_ns)])
    return record.first_ns, record.last_ns


@given(
    ahead_ns=st.integers(-20 * 365 * 24 * HOUR_NS, 20 * 365 * 24 * HOUR_NS),
    delays_ns=st.lists(st.integers(0, SYNCHRONOUS_NS - 1), min_size=1, max_size=20),
)
@example(ahead_ns=SYNCHRONOUS_NS + 1, delays_ns=[2])
def test_ages_are_right_whatever_the_switch_s_clock_says(ahead_ns: int, delays_ns: list[int]) -> None:
    """The error is at most the difference that counts as none, and the delay of the first report."""
    clocks = SwitchClocks()
    for number, delay_ns in enumerate(delays_ns):
        sent_ns = NOW_NS + number * HOUR_NS
        clocks.note(1, sent_ns + ahead_ns, sent_ns + delay_ns)
        first_ns, last_ns = seen(clocks, sent_ns + ahead_ns - 50, sent_ns + ahead_ns - 20)
        assert last_ns - first_ns == 30
        assert abs(sent_ns - 20 - last_ns) <= SYNCHRONOUS_NS + delays_ns[0]


def test_a_quicker_report_does_not_change_the_order_of_times() -> None:
    """Otherwise a flow could close before it opened, and its end would be ignored."""
    clocks = SwitchClocks()
    clocks.note(1, NOW_NS, NOW_NS + HOUR_NS + 50_000_000)
    opened_ns, _ = seen(clocks, NOW_NS, NOW_NS)
    clocks.note(1, NOW_NS, NOW_NS + HOUR_NS + 1_000_000)
    assert seen(clocks, NOW_NS, NOW_NS + 1)[1] == opened_ns + 1
    clocks.note(1, NOW_NS, NOW_NS + HOUR_NS - SYNCHRONOUS_NS)
    assert seen(clocks, NOW_NS, NOW_NS)[0] == NOW_NS + HOUR_NS - SYNCHRONOUS_NS, "the first report was late"


def test_synchronous_clocks_change_no_time() -> None:
    clocks = SwitchClocks()
    clocks.note(1, NOW_NS, NOW_NS + SYNCHRONOUS_NS - 1)
    assert seen(clocks, 5, 7) == (5, 7)


@pytest.mark.parametrize("dpid", [1, 2])
def test_only_the_switch_of_a_session_is_corrected(dpid: int) -> None:
    clocks = SwitchClocks()
    clocks.note(1, NOW_NS - HOUR_NS, NOW_NS)
    assert seen(clocks, 5, 7, dpid) == ((5 + HOUR_NS, 7 + HOUR_NS) if dpid == 1 else (5, 7))
    clocks.forget(1)
    assert seen(clocks, 5, 7, dpid) == (5, 7)
