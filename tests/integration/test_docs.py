"""Every command that the pages show is run here, as it stands but for the names of bridge and port.

`make test` runs this very test, and tests/integration/test_demo.py runs `make demo`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from flowdb.db import FlowDb
from flowdb.flow import FiveTuple, Flow, Hop
from openflow_ext.switch.dataplane.netlink import Netlink
from openflow_ext.switch.ovs.egress import Egress, read_egresses
from tests.support.agent.network_apart import network_apart
from tests.support.agent.switch_bench import Bench, open_vswitch
from tests.support.lab.examples import one_case
from tests.support.waiting import DEADLINE_S, wait_until
from tools.doc_checks import PAGES, PROJECT, page_commands

pytestmark = pytest.mark.lab_beside_others

PORT = 6653
PINS = Path("/sys/fs/bpf/weir")
SET_UP = ("make setup", "make bpf")
CONFIG = ".venv/bin/weir config check weir.toml"
DOCTOR = ".venv/bin/weir doctor"
SDTCP = ".venv/bin/ryu-manager fabric_app.app sdtcp_app.app"
SCCP = ".venv/bin/ryu-manager fabric_app.app sccp_app.app"
OS_KEN = (
    ".venv/bin/weir controller --engine os-ken --listen 127.0.0.1:6653 --apps fabric_app.app,sccp_app.app"
)
SWITCH = f".venv/bin/weir switch --bridge br0 --controller tcp:127.0.0.1:{PORT}"
DETACH = ".venv/bin/weir switch --bridge br0 --detach"
SHAPE = (
    "ip link set dev eth1 txqueuelen 100",
    "ovs-vsctl --id=@qos create qos type=linux-htb other-config:max-rate=100000000 -- set port eth1 qos=@qos",
)
LOOKS = (
    ".venv/bin/weir ports",
    ".venv/bin/weir flows",
    ".venv/bin/weir flows --tracked --limit 20 --json",
)
WATCH = ".venv/bin/weir ports --watch"
ROLL_OUT = (".venv/bin/weir off", ".venv/bin/weir on", ".venv/bin/weir support")
DATABASE = (
    ".venv/bin/weir db upgrade",
    ".venv/bin/weir db stats",
    ".venv/bin/weir db export flows flows.parquet --since 2026-11-20",
    ".venv/bin/weir why '10.0.0.7:7000>10.0.0.1:40112'",
    ".venv/bin/weir why 4294967301 --json",
    ".venv/bin/weir db prune --flows-days 7 --gb 2",
)
TRANSPORTS = (
    ".venv/bin/weir transports list",
    ".venv/bin/weir transports load weir_dctcp",
    "ip netns exec h1 .venv/bin/weir transports sockets --json",
    ".venv/bin/weir transports unload weir_dctcp",
)
WEB = (
    ".venv/bin/weir web",
    ".venv/bin/weir web --db /var/lib/weir/weir.db --listen 127.0.0.1:8080",
)
ACCOUNTS = (
    ".venv/bin/weir accounts add ada",
    ".venv/bin/weir accounts add-token grafana",
    ".venv/bin/weir accounts add-token night-job --scope act",
)
DCUDP_FOLDER = "mkdir -p received"
DCUDP_RECEIVER = ".venv/bin/weir dcudp recv --listen 127.0.0.1:9777 --dir received"
DCUDP = (
    ".venv/bin/weir dcudp send data.bin 127.0.0.1:9777",
    ".venv/bin/weir dcudp key dcudp.key",
    ".venv/bin/weir dcudp bench --seconds 1",
)
LAB_LIST = ".venv/bin/weir lab list"
LAB_COMPARE = ".venv/bin/weir lab compare results/before/demo results/after/demo"
RUN_HERE = {
    *DATABASE,
    *TRANSPORTS,
    *WEB,
    *ACCOUNTS,
    DCUDP_FOLDER,
    DCUDP_RECEIVER,
    *DCUDP,
    *SET_UP,
    LAB_LIST,
    LAB_COMPARE,
    CONFIG,
    DOCTOR,
    SDTCP,
    SCCP,
    OS_KEN,
    SWITCH,
    DETACH,
    *SHAPE,
    *LOOKS,
    *ROLL_OUT,
    WATCH,
}
RUN_ELSEWHERE = {"make test", "make demo", ".venv/bin/weir lab run quick --out results/quick"}
# CONTRIBUTING.md: `make test` runs `make check`, which runs `make docs`; the tests are those that run now.
RUN_BY_MAKE_TEST = {
    "make check",
    "make docs",
    "make unit",
    ".venv/bin/pre-commit install",
    ".venv/bin/pytest -n logical tests/unit/flowdb",
    ".venv/bin/pytest tests/unit/sdtcp_app",
    ".venv/bin/pytest tests/unit/sdtcp_app/test_core.py -k release",
    "sudo .venv/bin/pytest tests/bpf/test_clamp.py",
}


class Shell:
    """Runs lines in a folder of its own that looks like the project's, with the tests' Open vSwitch."""

    def __init__(self, folder: Path, bench: Bench) -> None:
        self.folder, self.bench = folder, bench
        (folder / ".venv").symlink_to(PROJECT / ".venv")
        self.env = {**bench.ovs.env, "WEIR_CONFIG": str(folder / "weir.toml")}
        (folder / "weir.toml").write_text(f'[flowdb]\nurl = "sqlite:///{folder}/weir.db"\n')

    def start(self, line: str) -> subprocess.Popen[str]:
        line = line.replace("br0", self.bench.bridge).replace("eth1", self.bench.port(1))
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen(line.split(), cwd=self.folder, env=self.env, **pipes)  # type: ignore[call-overload,no-any-return]

    def run(self, line: str) -> str:
        process = self.start(line)
        output, _ = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0, output
        return output

    @contextlib.contextmanager
    def going(self, line: str, exit_code: int = 0) -> Iterator[subprocess.Popen[str]]:
        """A line that goes on until Ctrl-C, which it takes well."""
        process = self.start(line)
        try:
            yield process
            assert process.poll() is None, process.communicate()[0]
            process.send_signal(signal.SIGINT)
            output, _ = process.communicate(timeout=DEADLINE_S)
            assert process.returncode == exit_code, output
            assert "Traceback" not in output
        finally:
            process.kill()
            print(f"{line}\n{process.communicate()[0]}")


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    assert not PINS.exists(), "a weir switch works on this machine, or has left its data plane: detach it"
    with network_apart(), open_vswitch() as ovs:
        bench = Bench(ovs)
        shell = Shell(tmp_path, bench)
        try:
            bench.build()
            yield shell
        finally:
            shell.start(DETACH).communicate(timeout=DEADLINE_S)
            bench.tear_down()


def test_a_port_that_open_vswitch_shapes(shell: Shell) -> None:
    for line in SHAPE:
        shell.run(line)
    name = shell.bench.port(1)
    ifindex = socket.if_nametoindex(name)
    with contextlib.closing(Netlink()) as netlink:
        assert read_egresses(netlink, {ifindex: name}) == {ifindex: Egress(100_000_000, 100 * 1514)}


def listens(port: int = PORT) -> bool:
    with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


def test_each_command_of_the_pages_is_run() -> None:
    assert {
        line for page in PAGES for line in page_commands(page)
    } == RUN_HERE | RUN_ELSEWHERE | RUN_BY_MAKE_TEST


@pytest.mark.parametrize("line", [*SET_UP, DOCTOR, LAB_LIST])
def test_in_the_project(line: str) -> None:
    subprocess.run(line.split(), cwd=PROJECT, check=True, capture_output=True, timeout=120)


def test_the_settings_that_the_page_shows(tmp_path: Path) -> None:
    page = (PROJECT / "docs" / "guides" / "controller.md").read_text()
    (tmp_path / ".venv").symlink_to(PROJECT / ".venv")
    blocks = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert blocks
    for block in blocks:
        (tmp_path / "weir.toml").write_text(block)
        subprocess.run(CONFIG.split(), cwd=tmp_path, check=True, capture_output=True, timeout=DEADLINE_S)


def run_in(folder: Path, *lines: str) -> None:
    """Each line in a folder that looks like the project's, with a database of its own."""
    env = like_the_project(folder)
    for line in lines:
        done = subprocess.run(
            shlex.split(line),
            cwd=folder,
            env=env,
            input="a long password\n" * 2,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{line}: {done.stderr}"


def test_two_result_folders(tmp_path: Path) -> None:
    row = {"case": "A", "scheme": "plain", "valid": True, "qct_ms": {"p50": 50.0}}
    for name in ("before", "after"):
        folder = tmp_path / "results" / name / "demo"
        folder.mkdir(parents=True)
        (folder / "summary.json").write_text(json.dumps([row]))
        (folder / "metadata.json").write_text(json.dumps({"experiment": one_case().to_json()}))
    run_in(tmp_path, LAB_COMPARE)


def like_the_project(folder: Path) -> dict[str, str]:
    """Makes a folder look like the project's; the environment for a database and accounts of its own."""
    (folder / ".venv").symlink_to(PROJECT / ".venv")
    (folder / "weir.toml").write_text(f'[web]\naccounts = "{folder}/accounts.json"\n')
    return os.environ | {"WEIR_DB": str(folder / "weir.db"), "WEIR_CONFIG": str(folder / "weir.toml")}


def test_the_database(tmp_path: Path) -> None:
    flowdb = FlowDb(f"sqlite:///{tmp_path}/weir.db")
    key = FiveTuple("10.0.0.7", "10.0.0.1", 7000, 40112)
    flowdb.flow_opened(Flow(4294967301, key, (Hop(1, 1, 2),), flowdb.clock.now_ns(), 1448, 9))
    flowdb.close()
    run_in(tmp_path, *DATABASE)
    assert (tmp_path / "flows.parquet").stat().st_size


def test_who_may_log_in(tmp_path: Path) -> None:
    run_in(tmp_path, *ACCOUNTS)


@pytest.mark.parametrize("line", WEB)
def test_the_dashboard(line: str, tmp_path: Path) -> None:
    env = like_the_project(tmp_path)
    FlowDb(f"sqlite:///{tmp_path}/weir.db").close()
    argv = line.replace("/var/lib/weir", str(tmp_path)).split()
    with subprocess.Popen(argv, cwd=tmp_path, env=env) as dashboard:
        try:
            wait_until(lambda: listens(8080), "the dashboard listens")
            with urllib.request.urlopen("http://127.0.0.1:8080/") as page:
                assert b"Overview" in page.read()
        finally:
            dashboard.send_signal(signal.SIGINT)
        assert dashboard.wait(DEADLINE_S) == 0


def test_files_over_dcudp(tmp_path: Path) -> None:
    env = like_the_project(tmp_path)
    (tmp_path / "data.bin").write_bytes(bytes(1_000_000))
    subprocess.run(DCUDP_FOLDER.split(), cwd=tmp_path, env=env, check=True)
    argv = DCUDP_RECEIVER.split()
    with subprocess.Popen(argv, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True) as receiver:
        try:
            assert receiver.stdout is not None
            assert receiver.stdout.readline() == "listening on 127.0.0.1:9777\n"
            for line in DCUDP:
                subprocess.run(line.split(), cwd=tmp_path, env=env, check=True, timeout=DEADLINE_S)
        finally:
            receiver.send_signal(signal.SIGINT)
        assert receiver.wait(DEADLINE_S) == 0
    assert (tmp_path / "received" / "data.bin").read_bytes() == bytes(1_000_000)


def test_congestion_controls(tmp_path: Path) -> None:
    subprocess.run(("ip", "netns", "add", "h1"), check=True)
    try:
        run_in(tmp_path, *TRANSPORTS)
    finally:
        subprocess.run(("ip", "netns", "del", "h1"), check=True)


def test_a_switch_and_its_controller(shell: Shell) -> None:
    with shell.going(SDTCP):
        wait_until(listens, "the controller listens")
        with shell.going(SWITCH):
            wait_until(shell.bench.ping, "ping by way of the controller")
            for line in (*LOOKS, *ROLL_OUT):
                assert shell.run(line)
            with shell.going(WATCH) as watch:
                assert watch.stdout is not None
                shown = watch.stdout
                wait_until(lambda: shell.bench.port(1) in shown.readline(), "the watch shows a port")
        assert not PINS.exists(), "Ctrl-C takes the data plane off"
        switch = shell.start(SWITCH)
        wait_until(lambda: (PINS / "ports").exists() and shell.bench.ping(), "the switch works again")
        switch.kill()
        switch.communicate()
        assert PINS.exists(), "the data plane works on after a crash"
        shell.run(DETACH)
        assert not PINS.exists()


@pytest.mark.parametrize("line", [SCCP, OS_KEN])
def test_controllers(shell: Shell, line: str) -> None:
    with shell.going(line):
        wait_until(listens, "the controller listens")
        with shell.going(SWITCH):
            wait_until(shell.bench.ping, "ping by way of the controller")
