"""TLS to a controller over a real socket, and the errors if it cannot be set up."""

from __future__ import annotations

import asyncio
import ssl
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from openflow_ext.switch.config import SwitchSettings
from openflow_ext.switch.errors import SwitchError
from openflow_ext.switch.openflow.proxy import Controller, Proxy
from openflow_ext.switch.openflow.session import Session
from openflow_ext.switch.ovs.tls import client_context
from tests.support.agent.certificates import certify
from tests.support.agent.proxy_bench import Bench, End, echo
from tests.support.waiting import wait_until_async


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pki")
    for name, authority in (("ca", "ca"), ("switch", "ca"), ("other", "other")):
        certify(folder, name, authority)
    certify(folder, "controller", hosts="IP:127.0.0.1")
    certify(folder, "elsewhere", hosts="IP:127.0.0.2,DNS:localhost")
    certify(folder, "impostor", "other", hosts="IP:127.0.0.1")
    return folder


def settings(folder: Path, **others: Any) -> SwitchSettings:
    files = {"private_key": "switch.key", "certificate": "switch.pem", "ca_certificate": "ca.pem"}
    return SwitchSettings(**{name: folder / file for name, file in (files | others).items()})


def database(*rows: dict[str, str]) -> Any:
    return SimpleNamespace(tables={"SSL": {str(n): row for n, row in enumerate(rows)}})


def exchange(folder: Path, tmp_path: Path, server_name: str) -> tuple[bool, Any]:
    """Whether a message reaches a controller with that certificate, and the certificate of the switch."""
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
    """Whether the session ends before it is connected to the controller."""
    await wait_until_async(
        lambda: not ends.empty() or switch.reader.at_eof() or switch.reader.exception(),
        "an end of the session",
    )
    return ends.empty()


def test_both_ends_verify_the_certificate_of_the_other(folder: Path, tmp_path: Path) -> None:
    through, seen = exchange(folder, tmp_path, "controller")
    assert through
    assert seen[0]["subject"] == ((("commonName", "switch"),),)


def test_a_controller_that_another_ca_signed_is_refused(folder: Path, tmp_path: Path) -> None:
    through, seen = exchange(folder, tmp_path, "impostor")
    assert not through
    assert seen == []


def test_a_controller_whose_certificate_names_another_host_is_refused(folder: Path, tmp_path: Path) -> None:
    through, seen = exchange(folder, tmp_path, "elsewhere")
    assert not through
    assert seen == []


def test_host_names_are_compared_by_default_with_files_of_the_section_only(folder: Path) -> None:
    row = {"private_key": "switch.key", "certificate": "switch.pem", "ca_cert": "ca.pem"}
    db = database({name: str(folder / file) for name, file in row.items()})
    assert not client_context(SwitchSettings(), db).check_hostname
    assert client_context(SwitchSettings(check_host_names=True), db).check_hostname
    assert client_context(settings(folder), db).check_hostname
    without = settings(folder).model_copy(update={"check_host_names": False})
    assert not client_context(without, db).check_hostname


def test_open_vswitch_s_own_files_are_used_if_none_are_set(folder: Path) -> None:
    row = {"private_key": "switch.key", "certificate": "switch.pem", "ca_cert": "ca.pem"}
    db = database({name: str(folder / file) for name, file in row.items()})
    assert client_context(SwitchSettings(), db).verify_mode is ssl.CERT_REQUIRED


def test_missing_tls_files_are_named(folder: Path) -> None:
    with pytest.raises(SwitchError, match="set private_key, certificate and ca_certificate"):
        client_context(SwitchSettings(), database())
    with pytest.raises(SwitchError, match="all three"):
        client_context(SwitchSettings(private_key=folder / "switch.key"), database())
    with pytest.raises(SwitchError, match="No such file"):
        client_context(settings(folder, ca_certificate="none.pem"), database())
    with pytest.raises(SwitchError, match="TLS: "):
        client_context(settings(folder, private_key="other.key"), database())
