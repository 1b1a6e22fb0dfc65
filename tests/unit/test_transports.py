"""`weir transports` without root: what is listed, what is refused and why."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from openflow_ext.switch.libbpf import BpfError
from transports import cli, congestion, sockets
from transports.congestion import TransportError

NAME = "weir_dctcp"


def test_the_kernels_and_ours_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "available", lambda: ["reno", NAME])
    rows = json.loads(CliRunner().invoke(cli.transports, ["list", "--json"]).stdout)
    assert rows == [
        {"name": "reno", "what": "the kernel's", "loaded": True},
        {"name": NAME, "what": "Data Center TCP, RFC 8257", "loaded": True},
    ]
    text = CliRunner().invoke(cli.transports, ["list"]).stdout
    assert text.splitlines()[-1].split()[-1] == "yes"


def test_reno_is_always_there() -> None:
    assert "reno" in congestion.available()
    congestion.require_settable("reno")


def test_what_no_socket_can_use_is_told() -> None:
    with pytest.raises(TransportError, match="no socket can use nonesuch"):
        congestion.require_settable("nonesuch")


def test_a_missing_or_broken_object_is_told_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIR_BUILD", str(tmp_path))
    with pytest.raises(TransportError, match="make bpf"):
        congestion.check(NAME)
    with pytest.raises(TransportError, match="make bpf"), sockets.socket_reader():
        pass
    (tmp_path / f"{NAME}.bpf.o").write_bytes(b"no object")
    with pytest.raises(TransportError, match=r"this kernel does not take weir_dctcp: .*modprobe tcp_dctcp"):
        congestion.check(NAME)


def test_without_rights_the_remedy_is_root(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def refuse(_path: Path) -> Iterator[None]:
        raise BpfError(errno.EPERM, "load: not permitted")
        yield

    monkeypatch.setattr(congestion, "Object", refuse)
    monkeypatch.setattr(congestion, "artifact", Path)
    with pytest.raises(TransportError, match="run it as root"):
        congestion.check(NAME)


def test_no_bpf_file_system_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(congestion, "BPFFS", tmp_path)
    with pytest.raises(TransportError, match="is not mounted: mount -t bpf"):
        congestion.unload(NAME)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(TransportError, match="no congestion control of Weir is called cubic: weir_dctcp"):
        congestion.unload("cubic")
    assert CliRunner().invoke(cli.transports, ["load", "cubic"]).exit_code == 2


def test_an_address_is_told_as_it_is_written() -> None:
    assert sockets._address(bytes(10) + b"\xff\xff\x0a\x00\x00\x01") == "10.0.0.1"
    assert sockets._address(bytes(15) + b"\x01") == "::1"
