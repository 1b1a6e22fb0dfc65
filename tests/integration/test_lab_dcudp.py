"""DCUDP in the lab: real hosts send over it, alone and beside TCP, through a switch that marks by a ramp."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.lab.lab_command import BOUND_S, rows_of
from tests.support.lab.leftovers import assert_nothing_left, machine
from tests.support.lab.void_runs import shown

pytestmark = pytest.mark.timeout(BOUND_S + 30)
EXPERIMENT = """
schemes = ["dcudp", "reno+dcudp"]
bandwidth_mbps = 19
queue_bytes = 400_000
source_mbps = 30
sample_ms = 10
warmup_s = 1.0
tail_s = 1.0

[[cases]]
name = "flows"
title = "two long flows, and twice three short ones"
workers = 3
background = 2
flows = { kind = "incast", workers = 3, queries = 2, gap_us = 1_000_000, total_bytes = 300_000 }
"""
LINK_MBPS, PAYLOAD_MBPS = 19, 18.2
"""The rate of the link, and its share for payload. On a busy machine, a sample at a receiver may be late."""


def test_flows_over_dcudp_alone_and_beside_tcp(tmp_path: Path) -> None:
    before = machine()
    rows = rows_of(tmp_path, "dcudp", EXPERIMENT)
    assert_nothing_left(before, tmp_path)
    alone, mixed = (shown(rows[scheme]) for scheme in ("dcudp", "reno+dcudp"))
    for row in (alone, mixed):
        assert row["flows_done"] == 6
        assert row["marks"] > 0
        assert row["goodput_mbps"] < 1.05 * LINK_MBPS
    assert alone["goodput_mbps"] > 0.5 * PAYLOAD_MBPS
    assert (alone["drops"], alone["ovs_drops"], alone["retransmits"]) == (0, 0, 0)
    assert alone["cwnd_kb"] is None
    assert alone["released_mbps"] > 0
    assert set(alone["goodput_by_transport"]) == {"dcudp"}
    assert set(mixed["goodput_by_transport"]) == {"reno", "dcudp"}
    sinks = {(one["host"], one["port"]) for one in _records(tmp_path, mixed) if one["event"] == "goodput"}
    assert len(sinks) == 2


def _records(folder: Path, row: dict[str, Any]) -> list[dict[str, Any]]:
    text = (folder / "out" / "dcudp" / "raw" / row["run"] / "traffic.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]
