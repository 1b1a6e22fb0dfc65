"""A real incast in the lab while the dashboard's pages are open, and a flow released from them by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from flowdb.models import ClampRow, DecisionRow, FlowRow, PortRow
from mininet_topos.experiments.experiment import MSS_BYTES
from mininet_topos.machine.programs import Program
from mininet_topos.network.lab_network import Network, network
from mininet_topos.network.layout import star
from mininet_topos.network.shaping import Bottleneck
from mininet_topos.running.traffic_programs import SINK_PORT
from sdtcp_app.stage import STAGE
from tests.support.dashboard.browser import chromium, dashboard, drawn, is_live, log_in, region
from tests.support.lab.stage import ROOT_PORT, Stage, in_host, sockets, stage
from tests.support.waiting import wait_until
from webui.template_filters import count

pytestmark = [pytest.mark.web, pytest.mark.timeout(240)]
LIMITS = {"clamp_limit_s": 120.0, "idle_timeout_s": 120, "hard_timeout_s": 120}
"""Clamps last until the burst's FINs or a person ends them."""
SDTCP = {"rtt_us": 10_000, "k_pkts": 40, **LIMITS}
SETTINGS = {"sdtcp": SDTCP, "switch": {"idle_s": 10.0}}
"""The long flows wait while the burst's connections are opened. That makes none of them idle."""


@pytest.fixture(scope="module")
def net() -> Iterator[Network]:
    """A star whose receiver has a small buffer: even a slowed flow fills it within seconds."""
    with network(star(6, 2, Bottleneck(100_000_000, queue_bytes=150_000))) as built:
        in_host(built.root, "sysctl", "-qw", "net.ipv4.tcp_rmem=4096 131072 131072")
        yield built


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    with chromium() as driver:
        yield driver


@contextmanager
def watched(net: Network, folder: Path) -> Iterator[tuple[Stage, str]]:
    """SDTCP at work in the lab, and the address of a dashboard over its database.

    It takes its share of the processors, for the lab's hosts and the browser are on this machine as well.
    """
    with stage(net, folder, "sdtcp", SETTINGS) as on:
        url = f"sqlite:///{folder / 'scheme' / 'flowdb.sqlite'}"
        with dashboard(url, folder, "--results", str(folder), "--no-yields") as root:
            yield on, root


def end_of(flow: FlowRow) -> tuple[str, int]:
    return flow.src, flow.src_port


def all_slowed(on: Stage) -> list[FlowRow]:
    """The long flows, once each has a clamp in the switch and in the database."""
    long_flows = [row for row in on.rows(FlowRow) if row.dst_port == SINK_PORT and row.closed_ns is None]
    standing = {row.flow_id for row in on.rows(ClampRow) if row.lifted_ns is None}
    slowed = [row for row in long_flows if row.id in standing and end_of(row) in on.punished()]
    return slowed if len(slowed) == len(on.net.senders) else []


def explained(browser: webdriver.Chrome, on: Stage, flow: FlowRow) -> bool:
    """Whether the page shows the newest decision on a flow: the inputs of its equation and its window."""
    decision = [row for row in on.rows(DecisionRow) if row.flow_id == flow.id][-1]
    said = (
        f"equation ({decision.equation})",
        f"({count(decision.allowance_bytes)} B + {count(decision.queue_bytes)} B) / {count(decision.n)} = ",
        f"{count(decision.mss_bytes)}) = {count(decision.window_bytes)} B",
    )
    return all(one in region(browser, "decisions") for one in said)


def slowed_by_an_incast(on: Stage) -> tuple[list[FlowRow], Program]:
    """Start an incast; return the long flows that it slowed, and the burst's program."""
    _, burst = on.start()
    return wait_until(lambda: all_slowed(on), "clamps of all long flows"), burst


def test_an_incast_appears_while_the_pages_are_open(
    net: Network, browser: webdriver.Chrome, tmp_path: Path
) -> None:
    """The alarm, the punished flow, its explanation and the lift."""
    with watched(net, tmp_path) as (on, root):
        browser.get(root)
        wait_until(lambda: is_live(browser), "the overview is live")
        assert "No flow is slowed down" in region(browser, "punished_now")
        (flow, *_), burst = slowed_by_an_incast(on)
        wait_until(
            lambda: f"{flow.src}:{flow.src_port}" in region(browser, "punished_now"), "the punished flow"
        )
        port = next(row.name for row in on.rows(PortRow) if row.port_no == ROOT_PORT)
        wait_until(lambda: f"{port}: queue of " in region(browser, "recent_decisions"), "the alarm")
        browser.get(f"{root}/flows/{flow.id}")
        wait_until(lambda: is_live(browser) and drawn(browser), "the flow's page is live, with its chart")
        slowed = f"Slowed down on purpose: the queue of {port} grew to "
        wait_until(
            lambda: (region(browser, "verdict"), region(browser, "clamps")),
            "the verdict",
            lambda regions: slowed in regions[0],
        )
        wait_until(lambda: explained(browser, on, flow), "the explanation")
        burst.stop()
        wait_until(lambda: "normal and burst over" in region(browser, "clamps"), "the lift and its reason")


def test_a_flow_released_from_the_page_is_released_in_the_switch(
    net: Network, browser: webdriver.Chrome, tmp_path: Path
) -> None:
    with watched(net, tmp_path) as (on, root):
        (flow, other, *_), _ = slowed_by_an_incast(on)
        log_in(browser, root)
        browser.get(f"{root}/flows/{flow.id}")
        wait_until(lambda: is_live(browser), "the flow's page is live")
        assert {end_of(flow), end_of(other)} <= on.punished()
        assert clamped_by_an_entry(on, flow)
        with on.sinks_stopped():  # once their receiver is full no alarm can choose one of them anew
            wait_until(lambda: max(windows(on)) < MSS_BYTES, "the receiver takes no more segments")
            browser.find_element(By.XPATH, "//button[.='Release']").click()
            wait_until(lambda: "released by hand" in region(browser, "clamps"), "the lift on the page")
            wait_until(
                lambda: " released" in region(browser, "clamps"), "the controller's answer on the page"
            )
            assert end_of(flow) not in on.punished(), "its clamp is gone in the switch"
            assert not clamped_by_an_entry(on, flow)
            assert end_of(other) in on.punished()


def windows(on: Stage) -> list[int]:
    """The windows that the long flows' receiver advertises."""
    return [one.snd_wnd for host in on.net.senders for one in sockets(host, SINK_PORT)]


def clamped_by_an_entry(on: Stage, flow: FlowRow) -> bool:
    """Whether Open vSwitch holds SDTCP's entry for the flow's ACKs."""
    ours = (line for line in on.entries(STAGE.table) if "priority=65535" in line)
    return any(f"nw_dst={flow.src}," in line and f"tp_dst={flow.src_port}" in line for line in ours)
