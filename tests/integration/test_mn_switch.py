"""`mn --switch weir --controller weir` from the command line, with the lab's topologies."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mininet_topos.mn_switch import WeirController
from mininet_topos.running.scheme_programs import free_port, is_listening
from tests.support.agent.switch_bench import run
from tests.support.waiting import DEADLINE_S, wait_until
from weir_base.paths import PROJECT

pytestmark = pytest.mark.lab_beside_others

WEIR = str(Path(sys.executable).with_name("weir"))
BRIDGES = {"core", "agg1", "tor1", "tor2"}
CUSTOM = "mininet_topos/topo.py,mininet_topos/mn_switch.py"


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """The port on which SCCP's controller listens."""
    listen = free_port()
    config = tmp_path / "weir.toml"
    config.write_text(f"[flowdb]\nurl = 'sqlite:///{tmp_path}/weir.db'\n")
    argv = (WEIR, "controller", "--apps", "fabric_app.app,sccp_app.app", "--listen", f"127.0.0.1:{listen}")
    with (tmp_path / "controller.log").open("wb") as log:
        controller = subprocess.Popen((*argv, "--config", str(config)), stdout=log, stderr=log)
    wait_until(lambda: is_listening(listen), "the controller listens")
    yield listen
    controller.terminate()
    controller.wait(DEADLINE_S)


def test_a_tree_of_extended_switches_from_the_command_line(port: int, tmp_path: Path) -> None:
    assert not BRIDGES & set(run("ovs-vsctl", "list-br").split())
    argv = ("mn", "--custom", CUSTOM, "--topo", "threetier,1,2,1", "--switch", "weir")
    said = tmp_path / "mn.log"
    with (
        said.open("wb") as log,
        subprocess.Popen(
            (*argv, "--controller", f"weir,ip=127.0.0.1,port={port}"),
            cwd=PROJECT,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            text=True,
        ) as mn,
    ):
        assert mn.stdin is not None

        def all_reached() -> bool:
            """Run pingall once; return whether every host reached every other."""
            asked = said.read_text().count("Results:")
            print("pingall 1", file=mn.stdin, flush=True)
            wait_until(
                lambda: mn.poll() is not None or said.read_text().count("Results:") > asked, "an answer"
            )
            assert mn.poll() is None, said.read_text()
            return "Results: 0% dropped" in said.read_text()

        try:
            wait_until(all_reached, "hosts reach each other")
            ports = json.loads(run(WEIR, "ports", "--name", "mn", "--json"))["ports"]
            assert {one["name"].partition("-")[0] for one in ports} == BRIDGES
        finally:
            mn.communicate("exit\n", timeout=DEADLINE_S)
    assert mn.returncode == 0
    assert not BRIDGES & set(run("ovs-vsctl", "list-br").split())
    assert not Path("/sys/fs/bpf/mn").exists()


def test_a_controller_may_send_bytes_that_are_not_text() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            session, _ = server.accept()
            with session, contextlib.suppress(ConnectionError):
                session.sendall(b"\x04\x00\x00\x08\xb2\xff\xfe\x80")

        greeter = threading.Thread(target=greet)
        greeter.start()
        found = WeirController("c0", port=server.getsockname()[1])
        found.terminate()
        greeter.join(DEADLINE_S)
        assert not greeter.is_alive(), "it was asked"


def test_a_missing_controller_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    port = free_port()
    WeirController("c0", port=port).terminate()
    assert f"no controller at 127.0.0.1:{port}: [Errno" in caplog.text
