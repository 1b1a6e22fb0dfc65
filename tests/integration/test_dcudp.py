"""DCUDP between network namespaces: files over a real link, a full disk, fq, and a path whose MTU shrinks.

sender: a0 ---- b0 :router: b1 ---- c0 :receiver
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dcudp.cli import dcudp as command
from tests.support.lab.delay_bench import Namespace, delay_bench
from tests.support.waiting import DEADLINE_S, wait_until
from weir_base.paths import PROJECT

WEIR = (sys.executable, "-m", "weir", "dcudp")
PORT = 9777
V4, V6 = "10.1.0.2", "fd01::2"


class Path3:
    """Three namespaces in a row."""

    def __init__(self) -> None:
        self.sender, self.router, self.receiver = Namespace(), Namespace(), Namespace()
        for namespace in self._all():
            namespace.run("sysctl", "-q", "-w", "net.ipv6.conf.all.disable_ipv6=0")
            namespace.run("sysctl", "-q", "-w", "net.ipv6.conf.default.disable_ipv6=0")
            namespace.run("sysctl", "-q", "-w", "net.ipv6.conf.default.accept_dad=0")
            namespace.run("ip", "link", "set", "lo", "up")
        self._link(self.sender, "a0", "b0", 0)
        self._link(self.receiver, "c0", "b1", 1)
        self.router.run("sysctl", "-q", "-w", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")

    def _all(self) -> tuple[Namespace, ...]:
        return self.sender, self.router, self.receiver

    def _link(self, host: Namespace, outer: str, inner: str, net: int) -> None:
        self.router.run(
            "ip", "link", "add", inner, "type", "veth", "peer", "name", outer, "netns", str(host.pid)
        )
        ends = ((self.router, inner, 1, f"fd0{net}::1"), (host, outer, 2, f"fd0{net}::2"))
        for namespace, interface, number, v6 in ends:
            namespace.run("ip", "addr", "add", f"10.{net}.0.{number}/24", "dev", interface)
            namespace.run("ip", "addr", "add", f"{v6}/64", "dev", interface, "nodad")
            namespace.run("ip", "link", "set", interface, "up")
        host.run("ip", "route", "add", "default", "via", f"10.{net}.0.1")
        host.run("ip", "-6", "route", "add", "default", "via", f"fd0{net}::1")

    def close(self) -> None:
        for namespace in self._all():
            namespace.close()


@pytest.fixture(scope="module")
def path() -> Iterator[Path3]:
    made = Path3()
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def key(tmp_path: Path) -> Path:
    file = tmp_path / "key"
    assert CliRunner().invoke(command, ["key", str(file)]).exit_code == 0
    return file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "received"
    made.mkdir()
    return made


@contextmanager
def running(*argv: str) -> Iterator[subprocess.Popen[str]]:
    """A server until the end of the block, once it listens."""
    with subprocess.Popen(argv, cwd=PROJECT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["event"] == "listening"
            yield process
        finally:
            process.terminate()
            process.communicate(timeout=DEADLINE_S)


def address(host: str) -> str:
    return f"[{host}]:{PORT}" if ":" in host else f"{host}:{PORT}"


def recv(host: str, folder: Path, key: Path) -> tuple[str, ...]:
    return (*WEIR, "recv", "--json", "--listen", address(host), "--dir", str(folder), "--key-file", str(key))


def send(sender: Namespace, file: Path, host: str, key: Path) -> subprocess.CompletedProcess[str]:
    argv = (*WEIR, "send", str(file), address(host), "--json", "--key-file", str(key))
    return subprocess.run(sender.inside(*argv), cwd=PROJECT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("host", [V4, V6])
def test_a_file_passes_a_link(host: str, path: Path3, key: Path, folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(os.urandom(20_000_000))
    with running(*path.receiver.inside(*recv(host, folder, key))):
        done = send(path.sender, file, host, key)
    assert done.returncode == 0, done.stderr
    sent = json.loads(done.stdout)
    assert sent["connection"]["mtu_bytes"] == (1452 if ":" in host else 1472)
    assert not sent["connection"]["ecn_bleached"]
    assert (folder / "file").read_bytes() == file.read_bytes()


@pytest.mark.parametrize(("host", "any_address"), [("10.1.0.9", "0.0.0.0"), ("fd01::9", "::")])
def test_a_receiver_at_all_addresses_answers_from_the_one_that_was_asked(
    host: str, any_address: str, path: Path3, key: Path, folder: Path, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_bytes(os.urandom(1_000_000))
    # The kernel chooses a deprecated address only if the application names it.
    prefix, more = (64, ("nodad", "preferred_lft", "0")) if ":" in host else (24, ())
    path.receiver.run("ip", "addr", "add", f"{host}/{prefix}", "dev", "c0", *more)
    try:
        with running(*path.receiver.inside(*recv(any_address, folder, key))):
            done = send(path.sender, file, host, key)
    finally:
        path.receiver.run("ip", "addr", "del", f"{host}/{prefix}", "dev", "c0")
    assert done.returncode == 0, done.stderr
    assert (folder / "file").read_bytes() == file.read_bytes()


def test_a_full_disk_is_one_clear_error(path: Path3, key: Path, folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(os.urandom(3_000_000))
    mounted = f'mount -t tmpfs -o size=1m none {folder} && exec "$@"'
    argv = ("unshare", "--mount", "sh", "-c", mounted, "sh", *recv(V4, folder, key))
    with running(*path.receiver.inside(*argv)):
        done = send(path.sender, file, V4, key)
    assert done.returncode == 1
    assert done.stderr.startswith(
        "Error: the receiver refused file: its disk is full: 3000000 bytes are missing"
    )
    assert done.stderr.count("\n") == 1


def bench(path: Path3, key: Path, *more: str) -> Any:
    argv = (*WEIR, "bench", address(V4), "--json", "--key-file", str(key), "--seconds", "0.3", *more)
    return json.loads(path.sender.run(*argv))


def test_only_fq_sends_packets_at_their_times(path: Path3, key: Path) -> None:
    """A kernel without fq shows the timer only."""
    serve = (*WEIR, "bench", "--listen", address(V4), "--json", "--key-file", str(key))
    fq = path.sender.inside("tc", "qdisc", "replace", "dev", "a0", "root", "fq")
    with running(*path.receiver.inside(*serve)):
        by_timer = bench(path, key, "--rate-mbps", "100")
        has_fq = subprocess.run(fq, capture_output=True, check=False).returncode == 0
        by_qdisc = bench(path, key, "--rate-mbps", "100")
    assert by_timer["node"]["txtime"] == 0
    assert by_timer["node"]["paced"] > 0
    assert by_qdisc["node"]["txtime"] == int(has_fq)
    for measured in (by_timer, by_qdisc):
        assert 50e6 < measured["rate_bps"] < 105e6
    if has_fq:
        path.sender.run("tc", "qdisc", "del", "dev", "a0", "root")


def test_a_path_whose_mtu_shrinks_carries_the_rest(
    path: Path3, key: Path, folder: Path, tmp_path: Path
) -> None:
    file, part = tmp_path / "file", folder / "file.part"
    file.write_bytes(os.urandom(8_000_000))
    with running(*path.receiver.inside(*recv(V4, folder, key))):
        argv = (*WEIR, "send", str(file), address(V4), "--json", "--key-file", str(key), "--rate-mbps", "20")
        with subprocess.Popen(path.sender.inside(*argv), cwd=PROJECT, stdout=subprocess.PIPE) as sending:
            wait_until(lambda: part.exists() and part.stat().st_size > 10**6, "a part is there")
            path.router.run("ip", "link", "set", "b1", "mtu", "1300")
            try:
                assert sending.wait(DEADLINE_S) == 0
            finally:
                path.router.run("ip", "link", "set", "b1", "mtu", "1500")
    assert (folder / "file").read_bytes() == file.read_bytes()


def test_a_file_is_identical_after_losses_reordering_and_duplication(
    key: Path, folder: Path, tmp_path: Path
) -> None:
    file, impaired = tmp_path / "file", "delay_us=500,loss=5,reorder=5,duplicate=5"
    file.write_bytes(os.urandom(6_000_000))
    with delay_bench(tmp_path) as bench:
        for namespace, interface, host in ((bench.hosts, "h0", "10.1.0.1"), (bench.switch, "s0", V4)):
            namespace.run("ip", "addr", "add", f"{host}/24", "dev", interface)
        bench.start(impaired, impaired)
        with running(*bench.switch.inside(*recv(V4, folder, key))):
            done = send(bench.hosts, file, V4, key)
        line = bench.stop()["links"]["l0"]
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["connection"]["retransmitted"] > 50
    assert min(line["up"][name] for name in ("lost", "overtaking", "duplicated")) > 50
    assert (folder / "file").read_bytes() == file.read_bytes()
