"""Files over loopback: by the library, and by `weir dcudp`."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import dcudp
from dcudp import DcudpError, FileState, Options, TransferFailed, receiving
from dcudp.cli import dcudp as command
from dcudp.progress import showing_progress
from tests.support.dcudp.relay import relay_to
from tests.support.waiting import DEADLINE_S, wait_until, wait_until_async
from weir_base.paths import PROJECT

pytestmark = pytest.mark.cargo
CONTENT = os.urandom(3_000_001)
V4 = "127.0.0.1:0"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "data.bin"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "received"
    path.mkdir()
    return path


def run(test: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(test, DEADLINE_S)

    asyncio.run(bounded())


def test_files_arrive_beside_each_other_and_both_ends_know(source: Path, folder: Path) -> None:
    async def test() -> None:
        async with await dcudp.listen(V4, Options(folder=folder)) as node:
            async with await dcudp.connect(str(node.address)) as client:
                seen: list[FileState] = []
                names = [f"copy-{n}" for n in range(5)]
                states = await asyncio.gather(
                    *(client.send_file(source, name, seen.append) for name in names)
                )
                server = await node.accept()
                received = [await server.receive_file() for _ in names]
            expected = {(name, len(CONTENT), len(CONTENT), 0, sha256(CONTENT).digest()) for name in names}
            for found in (states, received):
                assert {(s.name, s.size, s.done, s.resumed, s.sha256) for s in found} == expected
            assert all(state.done <= state.size for state in seen)
        assert sorted(path.name for path in folder.iterdir()) == names
        assert all((folder / name).read_bytes() == CONTENT for name in names)

    run(test())


def test_a_transfer_that_broke_is_resumed(source: Path, folder: Path) -> None:
    """The path breaks in the middle. The next transfer sends only the missing rest."""
    part = folder / "data.bin.part"

    async def test() -> None:
        options = Options(folder=folder, dead_after_s=1.0, max_rate_bps=50_000_000)
        async with await dcudp.listen(V4, options) as node:
            with relay_to(tuple(node.address)) as relay:
                client = await dcudp.connect(relay.address, options)
                sending = asyncio.create_task(client.send_file(source))
                await wait_until_async(
                    lambda: part.exists() and part.stat().st_size > 10**6, "a part is there"
                )
                relay.keeps = lambda _: False
                with pytest.raises(TransferFailed, match="vanished"):
                    await sending
            server = await node.accept()
            with pytest.raises(TransferFailed, match="vanished"):
                await server.receive_file()
            had = part.stat().st_size
            assert 10**6 < had < len(CONTENT)
            assert not (folder / "data.bin").exists()
            async with await dcudp.connect(str(node.address), options) as client:
                state = await client.send_file(source)
            assert state.resumed == had
        assert (folder / "data.bin").read_bytes() == CONTENT
        assert not part.exists()

    run(test())


def test_an_end_without_a_folder_refuses_files(source: Path) -> None:
    async def test() -> None:
        async with await dcudp.listen(V4) as node, await dcudp.connect(str(node.address)) as client:
            with pytest.raises(TransferFailed, match="it receives no files"):
                await client.send_file(source)

    run(test())


def test_a_name_with_a_nul_is_refused_and_not_cut(source: Path, folder: Path) -> None:
    async def test() -> None:
        async with (
            await dcudp.listen(V4, Options(folder=folder)) as node,
            await dcudp.connect(str(node.address)) as client,
        ):
            with pytest.raises(DcudpError, match="NUL"):
                await client.send_file(source, "data\0.bin")
            with pytest.raises(DcudpError, match="NUL"):
                await client.send_file(Path(f"{source}\0.old"), "old")
        assert list(folder.iterdir()) == []

    run(test())


@contextmanager
def serving(*words: str, prefix: Sequence[str] = ()) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A command of `weir dcudp` that listens, as a process, and its address."""
    argv = (*prefix, sys.executable, "-m", "weir", "dcudp", *words, "--listen", V4, "--json")
    process = subprocess.Popen(argv, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process, json.loads(process.stdout.readline())["address"]
        process.send_signal(signal.SIGINT)
        process.wait(DEADLINE_S)
    finally:
        process.kill()
        process.communicate()


def receiver(
    *options: str, prefix: Sequence[str] = ()
) -> AbstractContextManager[tuple[subprocess.Popen[str], str]]:
    """`weir dcudp recv` as a process, and its address."""
    return serving("recv", *options, prefix=prefix)


def send(*words: str | Path) -> Result:
    return CliRunner().invoke(command, ["send", *map(str, words)])


def test_the_command_sends_a_file_and_states_its_hash(source: Path, folder: Path) -> None:
    with receiver("--dir", str(folder)) as (process, address):
        assert process.stdout is not None
        done = send(source, address, "--json", "--name", "other")
        assert done.exit_code == 0, done.output
        sent, received = json.loads(done.output), json.loads(process.stdout.readline())
        digest = sha256(CONTENT).hexdigest()
        assert (sent["size_bytes"], sent["sha256"], sent["resumed_bytes"]) == (len(CONTENT), digest, 0)
        assert (received["event"], received["name"], received["sha256"]) == ("received", "other", digest)
        again = send(source, address, "--name", "other")
        assert again.output == "other: the receiver had it already\n"
    assert process.returncode == 0
    assert (folder / "other").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("name", "error"),
    [("../escape", "slash"), ("/etc/passwd", "slash"), (".hidden", "dot"), ("a.part", ".part")],
)
def test_the_command_refuses_names_that_lead_elsewhere(
    name: str, error: str, source: Path, folder: Path
) -> None:
    with receiver("--dir", str(folder)) as (_, address):
        done = send(source, address, "--name", name)
    assert done.exit_code == 1
    assert done.output.startswith(f"Error: cannot send {source}: its name ")
    assert error in done.output
    assert done.output.count("\n") == 1
    assert list(folder.iterdir()) == []


def test_the_command_states_each_problem_in_one_sentence(source: Path, folder: Path, tmp_path: Path) -> None:
    (folder / "data.bin").write_bytes(b"another file")
    with receiver("--dir", str(folder)) as (_, address):
        done = send(source, address)
    assert done.exit_code == 1
    reason = "a file of this name exists and differs: remove or rename it first"
    assert done.output == f"Error: the receiver refused data.bin: {reason}\n"
    assert (folder / "data.bin").read_bytes() == b"another file"
    assert "is not an address and port" in send(source, "nowhere").output
    assert "give a key file" in send(source, "192.0.2.1:9").output
    listening = CliRunner().invoke(command, ["recv", "--listen", "0.0.0.0:0", "--dir", str(folder)])
    assert (listening.exit_code, "give a key file" in listening.output) == (1, True)


def test_a_receiver_that_cannot_write_on_keeps_the_part_and_says_why(source: Path, folder: Path) -> None:
    with receiver("--dir", str(folder), prefix=("prlimit", "--fsize=1000000")) as (_, address):
        done = send(source, address)
    assert done.exit_code == 1
    assert done.output.startswith("Error: the receiver refused data.bin: it cannot write the file: ")
    assert done.output.count("\n") == 1
    (part,) = folder.iterdir()
    assert (part.name, 0 < part.stat().st_size <= 1_000_000) == ("data.bin.part", True)
    with receiver("--dir", str(folder)) as (_, address):
        resumed = json.loads(send(source, address, "--json").output)["resumed_bytes"]
    assert resumed > 0
    assert (folder / "data.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("interrupted", ["sender", "receiver"])
def test_ctrl_c_at_either_end_leaves_the_part(interrupted: str, source: Path, folder: Path) -> None:
    part = folder / "data.bin.part"
    with receiver("--dir", str(folder)) as (receiving, address):
        argv = (sys.executable, "-m", "weir", "dcudp", "send", str(source), address, "--rate-mbps", "2")
        with subprocess.Popen(argv, cwd=PROJECT, stderr=subprocess.PIPE, text=True) as sending:
            wait_until(lambda: part.exists() and part.stat().st_size > 200_000, "a part is there")
            (sending if interrupted == "sender" else receiving).send_signal(signal.SIGINT)
            error = sending.communicate(timeout=DEADLINE_S)[1]
            if interrupted == "sender":
                assert (sending.returncode, error) == (130, "")
            else:
                assert (sending.returncode, error) == (1, "Error: the peer ended the connection\n")
                assert receiving.wait(DEADLINE_S) == 0
    assert [path.name for path in folder.iterdir()] == ["data.bin.part"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_the_progress_of_each_file(monkeypatch: pytest.MonkeyPatch) -> None:
    for enabled, terminal in ((True, Terminal()), (False, Terminal()), (True, io.StringIO())):
        monkeypatch.setattr(sys, "stderr", terminal)
        with showing_progress(enabled=enabled) as progress:
            progress(FileState("data.bin", 2_000_000, 1_000_000, 0, b""))
        shown = terminal.getvalue()
        assert ("data.bin" in shown and "1.0/2.0 MB" in shown) == (enabled and terminal.isatty())
        assert (enabled and terminal.isatty()) or shown == ""


def test_the_progress_of_a_file_that_is_over_disappears(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with showing_progress(enabled=True) as progress:
        for name in ("first.bin", "second.bin"):
            progress(FileState(name, 2_000_000, 1_000_000, 0, b""))
        progress(FileState("first.bin", 2_000_000, 2_000_000, 0, b"", is_over=True))
        terminal.truncate(0)
    assert "second.bin" in terminal.getvalue()
    assert "first.bin" not in terminal.getvalue()


def test_a_receiver_learns_that_a_file_is_over(source: Path, folder: Path) -> None:
    (folder / "taken").write_bytes(b"another file")

    async def test() -> None:
        async with (
            await dcudp.listen(V4, Options(folder=folder)) as node,
            await dcudp.connect(str(node.address)) as client,
        ):
            server, seen = await node.accept(), list[FileState]()
            server.on_file_progress = seen.append
            await client.send_file(source)
            with pytest.raises(TransferFailed):
                await client.send_file(source, "taken")
            for _ in range(2):
                with suppress(TransferFailed):
                    await server.receive_file()
        assert [state.name for state in seen if state.is_over] == ["data.bin", "taken"]

    run(test())


def test_the_progress_shows_a_name_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with showing_progress(enabled=True) as progress:
        progress(FileState("[red]x", 2_000_000, 1_000_000, 0, b""))
    assert "[red]x" in terminal.getvalue()


def test_once_ends_after_one_file(source: Path, folder: Path) -> None:
    with receiver("--dir", str(folder), "--once") as (process, address):
        assert send(source, address).exit_code == 0
        assert process.wait(DEADLINE_S) == 0


def test_once_ends_after_the_first_file_while_its_peer_stays_and_another_fails(
    source: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "PEER_CLOSES_S", 1.0)
    (folder / "taken").write_bytes(b"another file")

    async def test() -> None:
        events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

        def report(event: str, **fields: Any) -> None:
            events.put_nowait({"event": event, **fields})

        ending = receiving.receive_files(V4, Options(folder=folder), True, report, lambda _: None)
        receives = asyncio.create_task(ending)
        address = (await events.get())["address"]
        first, second = await dcudp.connect(address), await dcudp.connect(address)
        await first.send_file(source)
        with pytest.raises(DcudpError):
            await second.send_file(source, "taken")
        assert await receives is True
        assert str(await first.wait_ended()) == "the connection is closed"

    run(test())


def test_the_command_makes_a_key_that_both_ends_use(source: Path, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "key"
    made = CliRunner().invoke(command, ["key", str(path)])
    assert (made.exit_code, made.output) == (0, f"{path}: made a key\n")
    assert path.read_text().strip() not in made.output
    assert CliRunner().invoke(command, ["key", str(path)]).exit_code == 1
    with receiver("--dir", str(folder), "--key-file", str(path)) as (process, address):
        assert send(source, address, "--key-file", path).exit_code == 0
        assert path.read_text().strip() not in " ".join(process.args)
        assert "same key file" in send(source, address).output
    assert (folder / "data.bin").read_bytes() == CONTENT


def test_a_rate_is_not_exceeded(source: Path, folder: Path) -> None:
    with receiver("--dir", str(folder)) as (_, address):
        began_s = time.monotonic()
        done = send(source, address, "--json", "--rate-mbps", "20")
        elapsed_s = time.monotonic() - began_s
    assert done.exit_code == 0, done.output
    assert elapsed_s > len(CONTENT) * 8 / 20e6
    assert json.loads(done.output)["rate_bps"] <= 20e6


def test_bench_measures_both_ends_on_loopback() -> None:
    done = CliRunner().invoke(command, ["bench", "--seconds", "0.5", "--rate-mbps", "100", "--json"])
    assert done.exit_code == 0, done.output
    measured = json.loads(done.output)
    assert 50e6 < measured["rate_bps"] < 105e6
    assert measured["bytes"] > 10**6
    assert measured["sender_cpu_seconds"] > 0
    assert measured["receiver_cpu_seconds"] > 0
    assert "throughput" in CliRunner().invoke(command, ["bench", "--seconds", "0.2"]).output


def test_data_that_the_commands_do_not_take_holds_up_no_other_peer(source: Path, folder: Path) -> None:
    async def send_data(address: str) -> None:
        async with await dcudp.connect(address) as client:
            for _ in range(40):
                await client.send(bytes(1 << 20))
                await client.send_stream(0, bytes(1 << 17), last=False)

    with receiver("--dir", str(folder)) as (_, address):
        run(send_data(address))
        assert send(source, address).exit_code == 0
    with serving("bench") as (_, address):
        run(send_data(address))
        assert CliRunner().invoke(command, ["bench", address, "--seconds", "0.1"]).exit_code == 0


def test_an_end_that_does_not_count_refuses_a_load(folder: Path) -> None:
    with receiver("--dir", str(folder)) as (_, address):
        done = CliRunner().invoke(command, ["bench", address, "--seconds", "0.2"])
    assert done.exit_code == 1
    assert "the peer does not count measurements" in done.output


def test_the_program_in_the_guide_runs(source: Path, folder: Path) -> None:
    page = (PROJECT / "docs" / "guides" / "dcudp.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    done = subprocess.run(
        (sys.executable, "-c", program),
        cwd=source.parent,
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "b'a message'\nb'bytes'\ndata.bin\n"
    assert (folder / "data.bin").read_bytes() == CONTENT
