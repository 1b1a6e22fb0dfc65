"""`weir transports` without root: the list, and the errors with their remedies."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from libbpf_cffi.libbpf import BpfError
from transports import cli, congestion, sockets
from transports.congestion import TransportError

NAME = "weir_dctcp"


def test_list_has_the_congestion_controls_of_the_kernel_and_of_weir(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "available", lambda: ["reno", NAME])
    monkeypatch.setattr(cli, "is_this_build", lambda _: False)
    rows = json.loads(CliRunner().invoke(cli.transports, ["list", "--json"]).stdout)
    assert rows[:2] == [
        {"name": "reno", "what": "part of the kernel", "loaded": True, "this_build": None},
        {"name": NAME, "what": "Data Center TCP, RFC 8257", "loaded": True, "this_build": False},
    ]
    others = {row["name"]: row["loaded"] for row in rows[2:]}
    assert others == dict.fromkeys(set(congestion.TRANSPORTS) - {NAME}, False)
    text = CliRunner().invoke(cli.transports, ["list"]).stdout
    assert [line.split()[-2:] for line in text.splitlines() if f"{NAME} " in line] == [["yes", "no"]]


def test_reno_is_always_available() -> None:
    assert "reno" in congestion.available()
    congestion.require_settable("reno")


def test_error_names_a_congestion_control_that_no_socket_can_use() -> None:
    with pytest.raises(TransportError, match="no socket can use nonesuch"):
        congestion.require_settable("nonesuch")


def test_error_for_a_missing_or_broken_object_states_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIR_BUILD", str(tmp_path))
    with pytest.raises(TransportError, match="make bpf"):
        congestion.check(NAME)
    with pytest.raises(TransportError, match="make bpf"), sockets.socket_reader():
        pass
    (tmp_path / f"{NAME}.bpf.o").write_bytes(b"no object")
    with pytest.raises(TransportError, match=r"this kernel rejects weir_dctcp: .*modprobe tcp_dctcp"):
        congestion.check(NAME)


def test_error_without_permission_says_to_run_as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def refuse(_path: Path) -> Iterator[None]:
        raise BpfError(errno.EPERM, "load: not permitted")
        yield

    monkeypatch.setattr(congestion, "Object", refuse)
    monkeypatch.setattr(congestion, "artifact", Path)
    with pytest.raises(TransportError, match="run it as root"):
        congestion.check(NAME)


def test_error_without_a_bpf_file_system_says_to_mount_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(congestion, "BPFFS", tmp_path)
    with pytest.raises(TransportError, match="is not mounted: mount -t bpf"):
        congestion.unload(NAME)


def test_unknown_name_is_rejected() -> None:
    with pytest.raises(TransportError, match="Weir has no congestion control cubic; it has weir_dctcp"):
        congestion.unload("cubic")
    assert CliRunner().invoke(cli.transports, ["load", "cubic"]).exit_code == 2


def test_address_is_written_as_ipv4_or_ipv6() -> None:
    assert sockets._address(bytes(10) + b"\xff\xff\x0a\x00\x00\x01") == "10.0.0.1"
    assert sockets._address(bytes(15) + b"\x01") == "::1"


class OneRead:
    """An iterator of the kernel whose output is these records."""

    def __init__(self, *records: bytes) -> None:
        self._records = records

    def read(self) -> bytes:
        return b"".join(self._records)


@pytest.mark.parametrize("name", [b"weir_other", b"weir_\xff"])
def test_a_socket_whose_control_keeps_another_state_is_left_out(name: bytes) -> None:
    """The kernel's record has its state in the place of struct weir_flow: any bytes."""
    size = sockets._ffi.sizeof("struct dctcp_socket")
    ours, other = (sockets._ffi.new("struct dctcp_socket *") for _ in range(2))
    ours.name, ours.cwnd = NAME.encode(), 7
    sockets._ffi.buffer(other)[:] = b"\xee" * size
    other.name = name
    records = (bytes(sockets._ffi.buffer(one)) for one in (other, ours))
    (found,) = sockets.SocketReader(OneRead(*records)).read()  # type: ignore[arg-type]
    assert (found.control, found.cwnd) == (NAME, 7)
