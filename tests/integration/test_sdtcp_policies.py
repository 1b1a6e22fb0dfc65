"""Each of SDTCP's policies with an idle flow among its candidates: real switch, controller and hosts."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flowdb.flow import NON_TCP_PERCENT
from flowdb.models import AlarmRow, DecisionRow, FlowRow, SettingRow
from mininet_topos.experiments.schemes import to_toml
from mininet_topos.network.lab_network import Network, network
from mininet_topos.network.layout import star
from mininet_topos.network.nodes import inside
from mininet_topos.network.shaping import Bottleneck
from mininet_topos.running.traffic_programs import SINK_PORT
from sdtcp_app.config import SdtcpSettings
from sdtcp_app.policies import policy_names
from tests.support.lab.stage import Stage, stage
from tests.support.waiting import DEADLINE_S, wait_until

SDTCP = {"rtt_us": 10_000, "clamp_limit_s": 0.2}
"""Clamps end soon after the last alarm, although younger flows are open."""
NO_ALARM = {"k_pkts": 100_000}
FLOOD = """
import socket, sys, time
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
start, sent = time.monotonic(), 0
while True:
    while sent < (time.monotonic() - start) * 200e6 / 8:
        sent += out.sendto(bytes(1400), (sys.argv[1], 9))
    time.sleep(0.001)
"""
"""Sends UDP at 200 Mbit/s to an address."""
FLOODED_S = 1.5
FIRST_FLOW_BYTES = 25_000_000
"""Two seconds alone on the link: more than the others send until volume and rate have been tested."""


@pytest.fixture(scope="module")
def net() -> Iterator[Network]:
    with network(star(1, 3, Bottleneck(100_000_000, queue_bytes=150_000))) as built:
        yield built


def flow_from(on: Stage, sender: int) -> FlowRow | None:
    address = on.net.senders[sender].IP()
    rows = [row for row in on.rows(FlowRow) if (row.src, row.dst_port) == (address, SINK_PORT)]
    return rows[0] if rows else None


def change_settings(on: Stage, **sdtcp: object) -> None:
    """Give the running controller another [sdtcp] section, and wait until it has it."""
    file = on.folder / "scheme" / "weir.toml"
    others = re.sub(r"\[sdtcp\][^\[]*", "", file.read_text())
    file.write_text(others + to_toml({"sdtcp": SDTCP | sdtcp}))
    wanted = SdtcpSettings.model_validate(SDTCP | sdtcp).model_dump(mode="json")
    wait_until(
        lambda: any(row.section == "sdtcp" and row.chosen == wanted for row in on.rows(SettingRow)),
        "the controller has the settings",
    )


def order_of(on: Stage, **sdtcp: object) -> list[int]:
    """The flows in the order in which the controller slows them with these settings. Clamps end before."""
    change_settings(on, **NO_ALARM)
    wait_until(lambda: not on.punished(), "the clamps end when the queue is short enough for ever")
    asked_ns = time.time_ns()
    change_settings(on, **sdtcp)
    decisions = wait_until(
        lambda: [row for row in on.rows(DecisionRow) if row.decided_ns > asked_ns], "the controller decides"
    )
    first = min(decisions, key=lambda row: row.decided_ns)
    assert first.policy == sdtcp.get("policy", SdtcpSettings().policy)
    assert first.flow_id == first.ranking[0]["flow_id"]
    return [candidate["flow_id"] for candidate in first.ranking]


def test_only_the_policy_of_the_paper_slows_an_idle_flow_first(net: Network, tmp_path: Path) -> None:
    """The idle flow is the oldest, and it sent most bytes, at the highest rate."""
    with stage(net, tmp_path, "sdtcp", {"sdtcp": SDTCP | NO_ALARM}) as on:
        first = on.start_long_flow(net.senders[0])
        wait_until(lambda: flow_from(on, 0), "bytes of the first flow", has_sent)
        os.kill(first.pid, signal.SIGSTOP)
        try:
            for number, sender in enumerate(net.senders[1:], 2):
                on.start_long_flow(sender)
                on.traffic.await_event("connected", number, DEADLINE_S)
            wait_until(lambda: flow_from(on, 0), "the first flow is idle", lambda row: row.state == "idle")
            flows = [flow_from(on, sender) for sender in range(3)]
            idle, *active = [flow.id for flow in flows if flow]
            policies = [{}, *({"policy": name} for name in sorted(policy_names(), key=by_bytes_first))]
            orders = {policy.get("policy", ""): order_of(on, **policy) for policy in policies}
        finally:
            os.kill(first.pid, signal.SIGCONT)
    assert orders.pop("longest-lived")[:3] == [idle, *active]
    for policy, order in orders.items():
        senders = [flow for flow in order if flow in (idle, *active)]
        assert senders[-1] == idle, policy
        assert set(senders[:2]) == set(active), policy
    assert orders[""] == orders["longest-lived-active"]
    assert orders[""][:2] == active
    assert orders["priority"][:2] == active, "by their age"


def test_a_queue_that_udp_fills_is_recorded_and_punishes_nobody(net: Network, tmp_path: Path) -> None:
    """A stream of UDP at twice the capacity fills the queue on its own. When it ends, TCP fills it again."""
    with stage(net, tmp_path, "sdtcp", {"sdtcp": SDTCP | {"k_pkts": 40}}) as on:
        flooder, sender = net.senders[:2]
        flood = inside(flooder, sys.executable, "-c", FLOOD, net.sinks[0].IP())
        with subprocess.Popen(flood) as flooding:
            alarm = wait_until(
                lambda: [row for row in on.rows(AlarmRow) if row.non_tcp_percent >= NON_TCP_PERCENT],
                "an alarm of UDP is recorded",
            )[0]
            on.start_long_flow(sender)
            on.traffic.await_event("connected", 1, DEADLINE_S)
            time.sleep(FLOODED_S)
            flooding.kill()
        ended_ns = time.time_ns()
        decisions = wait_until(
            lambda: [row for row in on.rows(DecisionRow) if row.decided_ns > ended_ns], "TCP is punished"
        )
        assert decisions[0].alarm_id != alarm.id
        assert not [row for row in on.rows(DecisionRow) if alarm.received_ns < row.decided_ns < ended_ns]
        rows = [row for row in on.rows(AlarmRow) if row.id == decisions[0].alarm_id]
        assert rows[0].non_tcp_percent < NON_TCP_PERCENT


def has_sent(flow: FlowRow | None) -> bool:
    return flow is not None and flow.sent_bytes > FIRST_FLOW_BYTES


def by_bytes_first(policy: str) -> bool:
    """Sorts policies such that the ones of volume and rate are the first."""
    return policy not in ("largest-volume", "highest-rate")
