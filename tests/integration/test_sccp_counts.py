"""N_i over real TCP: exactly 0 after random connections have ended; idle flows take no share.

``WEIR_CONNECTIONS`` says how many connections come and go (1500; 10,000 take a minute).
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from app_base.pipeline import FABRIC_TABLE
from openflow_ext.switch.dataplane.pinned_maps import PinnedMaps
from sccp_app import messages
from sccp_app.config import SccpSettings
from sccp_app.core import TABLE_I, PortPolicy
from sccp_app.stage import STAGE
from tests.support.agent.switch_bench import Bench, Controller, run
from tests.support.openflow.fake_datapath import FakeDatapath
from tests.support.waiting import wait_until
from weir_base.paths import PROJECT

CONNECTIONS = int(os.environ.get("WEIR_CONNECTIONS", "1500"))
CALLERS = 4
SHALLOW = ("tbf", "rate", "100mbit", "burst", "2k", "limit", "3200")
PORT = 7000
CHURN = PROJECT / "tests/support/lab/churn.py"
SERVER = "10.77.0.2"


def put_sccp(controller: Controller, common_rtt_us: int) -> None:
    """Send sccp_app's entries, with Open vSwitch's learning switch behind them."""
    datapath, scope = FakeDatapath(), SccpSettings().scope
    ofp, parser = datapath.ofproto, datapath.ofproto_parser
    to_sccp = [parser.OFPInstructionGotoTable(STAGE.table)]
    on = [parser.OFPInstructionGotoTable(FABRIC_TABLE)]
    forward = [
        parser.OFPInstructionActions(ofp.OFPIT_APPLY_ACTIONS, [parser.OFPActionOutput(ofp.OFPP_NORMAL)])
    ]
    for table, instructions in ((0, to_sccp), (STAGE.table, on), (FABRIC_TABLE, forward)):
        datapath.send_msg(parser.OFPFlowMod(datapath, table_id=table, priority=0, instructions=instructions))
    for message in messages.entries(datapath, TABLE_I, FABRIC_TABLE, scope):
        datapath.send_msg(message)
    controller.send(*(bytes(message.buf) for message in datapath.sent))
    assert controller.barrier() == []
    config = messages.configure_ports(datapath, PortPolicy(common_rtt_us), scope)
    datapath.send_msg(config)
    controller.ask(bytes(config.buf))


@contextlib.contextmanager
def churning(bench: Bench, host: int, *argv: str) -> Iterator[subprocess.Popen[str]]:
    command = bench.inside(host, sys.executable, "-I", str(CHURN), *argv)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def counted_flows(bench: Bench) -> int:
    with contextlib.closing(PinnedMaps(bench.name)) as maps:
        return sum(flow.counted for flow in maps.flows())


@pytest.mark.timeout(600)
def test_n_i_is_0_after_a_churn_with_loss_and_killed_hosts(bench: Bench, controller: Controller) -> None:
    """Some connections never end: a lost RST leaves a server that waits for ever."""
    bench.ready_agent(controller)
    controller.accept()
    for number in (1, 2):
        run("tc", "qdisc", "add", "dev", bench.port(number), "root", *SHALLOW)
    put_sccp(controller, common_rtt_us=600)
    chance, kills = random.Random(5), 0
    with churning(bench, 2, "serve", str(PORT)) as server:
        assert said(server) == "listening"
        with contextlib.ExitStack() as calling:

            def caller() -> subprocess.Popen[str]:
                seed = str(chance.randrange(10**6))
                return calling.enter_context(churning(bench, 1, "call", SERVER, str(PORT), seed))

            callers = [caller() for _ in range(CALLERS)]
            while bench.port_counters(2).syns_counted < CONNECTIONS:
                time.sleep(0.5)
                kills += 1
                callers[kills % CALLERS].send_signal(signal.SIGKILL)
                callers[kills % CALLERS] = caller()
            assert bench.port_counters(2).n_i > 0, "they were counted"
        for number in (1, 2):
            wait_until(
                lambda number=number: bench.port_counters(number).n_i == 0, f"N_i of port {number} back at 0"
            )
    assert counted_flows(bench) == 0
    found = [bench.port_counters(number) for number in (1, 2)]
    lost = sum(now.drops for now in found)
    assert lost > 0
    counted = [(now.syns_counted, now.fins_counted) for now in found]
    print(f"counted and ended at each port: {counted}; {kills} kills, {lost} packets lost")


def test_idle_connections_take_no_share(bench: Bench, controller: Controller) -> None:
    """Beside 1,000 idle flows, each of 20 active senders has a 20th of the BDP, and they fill the port."""
    idle, busy, rate_mbit, common_rtt_us = 1000, 20, 50, 20_000
    bench.ready_agent(controller)
    controller.accept()
    bench.shape(2, rate_mbit)
    put_sccp(controller, common_rtt_us)
    bdp_bytes = rate_mbit * 1_000_000 * common_rtt_us // 8_000_000
    run(*bench.inside(2, "sysctl", "-qw", "net.core.somaxconn=4096"))
    with churning(bench, 2, "serve", str(PORT)) as server:
        assert said(server) == "listening"
        wait_until(lambda: bench.port_counters(2).fair_share_bytes == bdp_bytes, "the port's own rate")
        with churning(bench, 1, "hold", SERVER, str(PORT), str(idle), str(busy)) as holder:
            assert said(holder) == "holding"
            wait_until(
                lambda: bench.port_counters(2).syns_counted >= idle + busy, "the last handshake is counted"
            )
            wait_until(lambda: bench.port_counters(2).n_i == busy, "the idle ones have left N_i")
            wait_until(lambda: sent_mbit_s(bench, 2) > 0.8 * rate_mbit, "the busy ones fill the port")
            wait_until(
                lambda: min(shares_in_a_second(bench, 2)) == bdp_bytes // busy,
                "each has a 20th, or more while hosts that wait for a CPU send nothing",
            )
            assert bench.port_counters(2).n_i == busy


def shares_in_a_second(bench: Bench, number: int) -> set[int]:
    found = set()
    for _ in range(20):
        found.add(bench.port_counters(number).fair_share_bytes)
        time.sleep(0.05)
    return found


def sent_mbit_s(bench: Bench, number: int) -> float:
    """The rate at which a port sends, in Mbit/s, over half a second."""
    began_s, before = time.monotonic(), bench.sent_bytes(number)
    time.sleep(0.5)
    return (bench.sent_bytes(number) - before) * 8e-6 / (time.monotonic() - began_s)
