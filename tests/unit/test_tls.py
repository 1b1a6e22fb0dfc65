"""TLS to a controller, over a real socket; and what is said when it cannot be."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from openflow_ext.switch.config import SwitchSettings
from openflow_ext.switch.errors import SwitchError
from openflow_ext.switch.proxy import Controller, Proxy
from openflow_ext.switch.session import Session
from openflow_ext.switch.tls import client_context
from tests.unit.proxy_bench import DEADLINE_S, Bench, End, echo


def certify(folder: Path, name: str, authority: str = "ca") -> tuple[Path, Path]:
    """A new key and a certificate for ``name``, signed by ``authority``; that itself: self-signed."""
    key, certificate = folder / f"{name}.key", folder / f"{name}.pem"
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    argv += ["-days", "2", "-subj", f"/CN={name}", "-keyout", str(key), "-out", str(certificate)]
    if name != authority:
        argv += ["-CA", f"{folder}/{authority}.pem", "-CAkey", f"{folder}/{authority}.key"]
    subprocess.run(argv, check=True, capture_output=True)
    return key, certificate


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pki")
    for name, authority in (("ca", "ca"), ("switch", "ca"), ("controller", "ca"), ("other", "other")):
        certify(folder, name, authority)
    certify(folder, "impostor", "other")
    return folder


def settings(folder: Path, **others: Any) -> SwitchSettings:
    files = {"private_key": "switch.key", "certificate": "switch.pem", "ca_certificate": "ca.pem"}
    return SwitchSettings(**{name: folder / file for name, file in (files | others).items()})


def database(*rows: dict[str, str]) -> Any:
    return SimpleNamespace(tables={"SSL": {str(n): row for n, row in enumerate(rows)}})


def exchange(folder: Path, tmp_path: Path, server_name: str) -> tuple[bool, Any]:
    """Whether a message gets through to a controller with that certificate; the switch's, as it saw it."""
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(folder / f"{server_name}.pem", folder / f"{server_name}.key")
    server_context.load_verify_locations(folder / "ca.pem")
    server_context.verify_mode = ssl.CERT_REQUIRED
    seen: list[Any] = []

    async def main() -> bool:
        bench = Bench(tmp_path)
        ends: asyncio.Queue[End] = asyncio.Queue()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            seen.append(writer.get_extra_info("peercert"))
            await ends.put(End(reader, writer))

        server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=server_context)
        target = f"ssl:127.0.0.1:{server.sockets[0].getsockname()[1]}"
        controller = Controller.parse(target, partial(client_context, settings(folder), database()))
        proxy = Proxy(tmp_path / "s1.controller", controller, partial(Session, bench.bridge))
        await proxy.listen()
        switch = End(*await asyncio.open_unix_connection(proxy.path))
        switch.send(echo(1, 60_000))
        try:
            if await is_hung_up_on(switch, ends):
                return False
            controller_end = await ends.get()
            assert await controller_end.message() == echo(1, 60_000)
            many = [echo(xid, 50_000) for xid in range(2, 5)]
            controller_end.send(*many)
            assert [await switch.message() for _ in many] == many
            controller_end.writer.close()
            assert await switch.ends()
            return True
        finally:
            await proxy.close()
            switch.writer.close()
            server.close()

    return asyncio.run(main()), seen


async def is_hung_up_on(switch: End, ends: asyncio.Queue[End]) -> bool:
    """Whether the session ends before a controller is there."""
    async with asyncio.timeout(DEADLINE_S):
        while ends.empty() and not (switch.reader.at_eof() or switch.reader.exception()):
            await asyncio.sleep(0.01)
    return ends.empty()


def test_both_ends_prove_who_they_are(folder: Path, tmp_path: Path) -> None:
    through, seen = exchange(folder, tmp_path, "controller")
    assert through
    assert seen[0]["subject"] == ((("commonName", "switch"),),)


def test_a_controller_that_another_ca_signed_is_refused(folder: Path, tmp_path: Path) -> None:
    through, seen = exchange(folder, tmp_path, "impostor")
    assert not through
    assert seen == []


def test_open_vswitch_s_own_files_are_used_where_none_are_set(folder: Path) -> None:
    row = {"private_key": "switch.key", "certificate": "switch.pem", "ca_cert": "ca.pem"}
    db = database({name: str(folder / file) for name, file in row.items()})
    assert client_context(SwitchSettings(), db).verify_mode is ssl.CERT_REQUIRED


def test_what_is_missing_is_said(folder: Path) -> None:
    with pytest.raises(SwitchError, match="set private_key, certificate and ca_certificate"):
        client_context(SwitchSettings(), database())
    with pytest.raises(SwitchError, match="all three"):
        client_context(SwitchSettings(private_key=folder / "switch.key"), database())
    with pytest.raises(SwitchError, match="No such file"):
        client_context(settings(folder, ca_certificate="none.pem"), database())
    with pytest.raises(SwitchError, match="TLS: "):
        client_context(settings(folder, private_key="other.key"), database())
