"""The default size of the flow table."""

from __future__ import annotations

from pathlib import Path

import pytest

from openflow_ext.switch.dataplane.flow_table_size import (
    FLOW_BYTES,
    LEAST_FLOWS,
    MOST_FLOWS,
    default_max_flows,
    held_max_flows,
)

GB = 1 << 30


@pytest.mark.parametrize("memory_gb", [8, 16, 24])
def test_the_table_takes_about_one_percent_of_the_memory(memory_gb: int) -> None:
    table_bytes = default_max_flows(memory_gb * GB) * FLOW_BYTES
    assert table_bytes == pytest.approx(memory_gb * GB / 100, rel=0.001)


def test_the_table_is_never_too_small_and_never_larger_than_a_million_flows() -> None:
    assert default_max_flows(GB // 2) == LEAST_FLOWS == 65_536
    assert default_max_flows(512 * GB) == MOST_FLOWS == 1_000_000
    assert LEAST_FLOWS <= default_max_flows() <= MOST_FLOWS


def test_without_a_data_plane_no_size_is_held(tmp_path: Path) -> None:
    assert held_max_flows(tmp_path) == 0
