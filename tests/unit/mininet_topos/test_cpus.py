"""The division of the CPUs between the switch and the rest of the lab."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mininet_topos.machine import lab_state as lab_state
from mininet_topos.machine.cpus import give_to_switch, hosts_apart, lab_cpus, mask
from mininet_topos.machine.lab_state import LabState
from mininet_topos.machine.proc_stat import started_ticks

ALL = os.sched_getaffinity(0)


@pytest.fixture
def claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LabState]:
    monkeypatch.setattr(lab_state, "STATE_DIR", tmp_path)
    monkeypatch.setattr(lab_state, "_bridge_exists", lambda name: False)
    state = LabState.claim()
    yield state
    state._file.close()


@pytest.fixture
def switch() -> Iterator[int]:
    """A process that may be bound: it stands for ovs-vswitchd."""
    with subprocess.Popen(("sleep", "60")) as process:
        yield process.pid
        process.kill()


def test_new_programs_do_not_run_on_the_switchs_cpu() -> None:
    with hosts_apart() as free:
        child = subprocess.run(("nproc",), capture_output=True, text=True, check=True)
        assert int(child.stdout) == max(1, len(ALL) - 1)
        assert free is None or os.sched_getaffinity(0) == ALL - {free}
    assert os.sched_getaffinity(0) == ALL


def test_a_single_cpu_is_shared(monkeypatch: pytest.MonkeyPatch, switch: int, claimed: LabState) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    with hosts_apart() as free:
        assert free is None
        give_to_switch(free, switch, claimed)
    assert claimed.bound is None


def test_the_switch_is_bound_until_the_state_is_released(switch: int, claimed: LabState) -> None:
    cpu = max(ALL)
    give_to_switch(cpu, switch, claimed)
    assert os.sched_getaffinity(switch) == {cpu}
    assert lab_cpus(switch) == sorted(ALL)
    claimed.release()
    assert os.sched_getaffinity(switch) == ALL


def test_the_binding_of_a_killed_lab_is_removed(switch: int, claimed: LabState) -> None:
    give_to_switch(max(ALL), switch, claimed)
    claimed._file.close()
    assert f"binding of process {switch} to one CPU" in lab_state.clean()
    assert os.sched_getaffinity(switch) == ALL


@pytest.mark.parametrize("first_ends_first", [True, False])
def test_the_last_of_two_labs_ends_the_binding(
    switch: int, claimed: LabState, first_ends_first: bool
) -> None:
    second = LabState.claim()
    for state in (claimed, second):
        give_to_switch(max(ALL), switch, state)
    ends_first, ends_last = (claimed, second) if first_ends_first else (second, claimed)
    ends_first.release()
    assert os.sched_getaffinity(switch) == {max(ALL)}
    ends_last.release()
    assert os.sched_getaffinity(switch) == ALL


def test_a_killed_lab_does_not_unbind_the_switch_of_a_running_one(switch: int, claimed: LabState) -> None:
    second = LabState.claim()
    for state in (claimed, second):
        give_to_switch(max(ALL), switch, state)
    claimed._file.close()
    assert lab_state.clean() == []
    assert os.sched_getaffinity(switch) == {max(ALL)}
    second.release()
    assert os.sched_getaffinity(switch) == ALL


def test_the_binding_of_another_owner_is_kept(switch: int, claimed: LabState) -> None:
    os.sched_setaffinity(switch, {min(ALL)})
    give_to_switch(max(ALL), switch, claimed)
    assert os.sched_getaffinity(switch) == {min(ALL)}
    claimed.release()
    assert os.sched_getaffinity(switch) == {min(ALL)}


def test_a_reused_pid_is_not_touched(switch: int, claimed: LabState) -> None:
    os.sched_setaffinity(switch, {min(ALL)})
    claimed.bound = (switch, (started_ticks(switch) or 0) + 1, sorted(ALL))
    claimed.release()
    assert os.sched_getaffinity(switch) == {min(ALL)}


@pytest.mark.parametrize(
    ("cpus", "text"),
    [((), "00000000"), ((0,), "00000001"), ((0, 5), "00000021"), ((33,), "00000002,00000000")],
)
def test_a_mask_has_the_kernels_format(cpus: tuple[int, ...], text: str) -> None:
    assert mask(cpus) == text


@given(st.sets(st.integers(0, 500)))
def test_a_mask_has_one_bit_for_each_cpu(cpus: set[int]) -> None:
    bits = int(mask(cpus).replace(",", ""), 16)
    assert {bit for bit in range(bits.bit_length()) if bits >> bit & 1} == cpus
