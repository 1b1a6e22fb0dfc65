"""CPUs shared out between the switch and the rest of the lab."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mininet_topos import state as lab_state
from mininet_topos.cpus import give_to_switch, hosts_apart, lab_cpus, mask
from mininet_topos.procstat import started_ticks
from mininet_topos.state import LabState

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


def test_programs_started_meanwhile_leave_the_switch_s_cpu_free() -> None:
    with hosts_apart() as free:
        child = subprocess.run(("nproc",), capture_output=True, text=True, check=True)
        assert int(child.stdout) == max(1, len(ALL) - 1)
        assert free is None or os.sched_getaffinity(0) == ALL - {free}
    assert os.sched_getaffinity(0) == ALL


def test_one_cpu_is_shared(monkeypatch: pytest.MonkeyPatch, switch: int, claimed: LabState) -> None:
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


def test_a_killed_lab_s_binding_is_taken_off(switch: int, claimed: LabState) -> None:
    give_to_switch(max(ALL), switch, claimed)
    claimed._file.close()
    assert f"binding of process {switch} to one CPU" in lab_state.clean()
    assert os.sched_getaffinity(switch) == ALL


def test_another_s_binding_is_left_alone(switch: int, claimed: LabState) -> None:
    os.sched_setaffinity(switch, {min(ALL)})
    give_to_switch(max(ALL), switch, claimed)
    assert os.sched_getaffinity(switch) == {min(ALL)}
    claimed.release()
    assert os.sched_getaffinity(switch) == {min(ALL)}


def test_a_pid_that_is_another_process_by_now_is_left_alone(switch: int, claimed: LabState) -> None:
    os.sched_setaffinity(switch, {min(ALL)})
    claimed.bound = (switch, (started_ticks(switch) or 0) + 1, sorted(ALL))
    claimed.release()
    assert os.sched_getaffinity(switch) == {min(ALL)}


@pytest.mark.parametrize(
    ("cpus", "text"),
    [((), "00000000"), ((0,), "00000001"), ((0, 5), "00000021"), ((33,), "00000002,00000000")],
)
def test_mask_as_the_kernel_writes_it(cpus: tuple[int, ...], text: str) -> None:
    assert mask(cpus) == text


@given(st.sets(st.integers(0, 500)))
def test_mask_names_each_cpu_once(cpus: set[int]) -> None:
    bits = int(mask(cpus).replace(",", ""), 16)
    assert {bit for bit in range(bits.bit_length()) if bits >> bit & 1} == cpus
