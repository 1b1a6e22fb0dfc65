"""Socket buffers of Open vSwitch: parsing, and system settings that cannot be changed."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mininet_topos.errors import Unable
from mininet_topos.machine import lab_state
from mininet_topos.machine.lab_state import LabState
from mininet_topos.network import ovs_buffers
from mininet_topos.network.ovs_buffers import PacketSocket, parse_packet_sockets

SS = """\
Netid Recv-Q Send-Q Local Address:Port Peer Address:PortProcess
p_raw 0 0 *:s1-eth1 * users:(("ovs-vswitchd",pid=7,fd=42)) skmem:(r0,rb212992,t0,tb16777216,f0,w0,o176,bl0,d5)
p_raw 0 0 [0]:* * users:(("ovs-vswitchd",pid=7,fd=44))
\t skmem:(r0,rb212992,t0,tb212992,f0,w0,o0,bl0,d0)
p_raw 0 0 *:x1 * users:(("ovs-vswitchd",pid=77,fd=42)) skmem:(r0,rb1,t0,tb2,f0,w0,o176,bl0,d9)
"""


def test_packet_sockets_of_one_process_are_parsed() -> None:
    assert parse_packet_sockets(SS, 7) == [
        PacketSocket("s1-eth1", 16_777_216, 5),
        PacketSocket("*", 212_992, 0),
    ]


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LabState]:
    monkeypatch.setattr(lab_state, "STATE_DIR", tmp_path / "labs")
    monkeypatch.setattr(lab_state, "_bridge_exists", lambda name: False)
    claimed = LabState.claim()
    yield claimed
    claimed._file.close()


@pytest.fixture
def sysctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "core" / "rmem_default"
    monkeypatch.setattr(ovs_buffers, "_RECEIVE_SYSCTL", path)
    monkeypatch.setattr(ovs_buffers, "_name", lambda path: path.name)
    return path


def test_receive_buffers_are_deep_for_a_while_and_noted_for_a_clean_up(state: LabState, sysctl: Path) -> None:
    sysctl.parent.mkdir()
    sysctl.write_text("212992\n")
    with ovs_buffers.deep_receive_buffers(state):
        assert sysctl.read_text() == "4194304\n"
        noted = json.loads(state.path.read_text())["sysctls"]
    assert noted == {str(sysctl): [212992, 4194304]}
    assert sysctl.read_text() == "212992\n"
    assert json.loads(state.path.read_text())["sysctls"] == {}


def test_a_sysctl_that_cannot_be_changed_is_reported_with_the_remedy(
    state: LabState, sysctl: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Unable, match=r"^rmem_default cannot be read \(No such file or directory\): run "):
        ovs_buffers.deep_receive_buffers(state).__enter__()
    sysctl.parent.mkdir()
    sysctl.write_text("212992\n")
    monkeypatch.setattr(Path, "write_text", refused)
    with pytest.raises(Unable, match=r"^rmem_default cannot be set to 4194304 \(Read-only file system\): "):
        ovs_buffers.deep_receive_buffers(state).__enter__()


def refused(path: Path, text: str) -> int:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))
