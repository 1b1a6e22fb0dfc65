"""The command `weir dcudp`."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import click

from dcudp.bench import measure, serve_bench
from dcudp.errors import DcudpError
from dcudp.events import FileState
from dcudp.native import ErrorText, c_string, lib
from dcudp.node import Options
from dcudp.progress import showing_progress
from dcudp.receiving import receive_files
from dcudp.sending import Sent, send_file
from weir_base.parameters import FiniteRange

Command = TypeVar("Command", bound=Callable[..., Any])
DEFAULT_LISTEN = "127.0.0.1:9777"
MBPS = 1_000_000
MOST_MBPS = 1_000_000
INTERRUPTED = 128 + signal.SIGINT


def _common(command: Command) -> Command:
    """The options of every command that opens a socket."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Write JSON."),
        click.option(
            "--link-mbps",
            type=FiniteRange(min=0.1, max=MOST_MBPS),
            help="Capacity of the bottleneck link: the first rate after a mark. [default: 1000]",
        ),
        click.option(
            "--rate-mbps",
            type=FiniteRange(min=0.1, max=MOST_MBPS),
            help="No connection sends faster. [default: the link's capacity]",
        ),
        click.option(
            "--key-file",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="The pre-shared key. Required beyond loopback.",
        ),
    ):
        command = option(command)
    return command


def _options(key_file: Path | None, rate_mbps: float | None, link_mbps: float | None, **more: Any) -> Options:
    return Options(
        key_file=key_file,
        max_rate_bps=round((rate_mbps or 0) * MBPS),
        link_rate_bps=round((link_mbps or 0) * MBPS),
        **more,
    )


@click.group()
def dcudp() -> None:
    """Move data over DCUDP: reliable UDP that reacts to ECN (Ye, Mhamdi, Hamdi: CloudNet 2014)."""


@dcudp.command("key")
@click.argument("file", type=click.Path(path_type=Path))
def key_command(file: Path) -> None:
    """Make FILE with a random key, which only its owner can read. Copy it to the other end."""
    error = ErrorText()
    if lib().dcudp_make_key(c_string(file), error.buffer, error.bytes):
        raise click.ClickException(str(error))
    click.echo(f"{file}: made a key")


@dcudp.command("recv")
@click.option("--listen", default=DEFAULT_LISTEN, show_default=True, help="Address and port.")
@click.option(
    "--dir",
    "folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    help="Folder for the files.  [default: the current folder]",
)
@click.option("--once", is_flag=True, help="End after the first file; exit 1 if it did not arrive.")
@_common
def recv_command(
    listen: str,
    folder: Path,
    once: bool,
    key_file: Path | None,
    rate_mbps: float | None,
    link_mbps: float | None,
    as_json: bool,
) -> None:
    """Receive files until Ctrl-C.

    A file gets its name when it is complete and its hash is right. A broken transfer leaves NAME.part, which
    the next transfer of the same file resumes. A file that exists is never written over.
    """
    report = _report_json if as_json else _report_text
    options = _options(key_file, rate_mbps, link_mbps, folder=folder)
    with _one_sentence(), showing_progress(enabled=not as_json) as progress:
        first_arrived = asyncio.run(receive_files(listen, options, once, report, progress))
    if once and first_arrived is False:
        raise SystemExit(1)


@dcudp.command("send")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("peer", metavar="HOST:PORT")
@click.option("--name", help="Name at the receiver.  [default: that of FILE]")
@_common
def send_command(
    file: Path,
    peer: str,
    name: str | None,
    key_file: Path | None,
    rate_mbps: float | None,
    link_mbps: float | None,
    as_json: bool,
) -> None:
    """Send FILE to a `weir dcudp recv` at HOST:PORT, and wait until it is there.

    If the receiver has a part of the file, only the rest is sent.
    """
    options = _options(key_file, rate_mbps, link_mbps)
    with _one_sentence(), showing_progress(enabled=not as_json) as progress:
        sent = asyncio.run(send_file(file, name or file.name, peer, options, progress))
    if as_json:
        click.echo(json.dumps(sent.as_json()))
    else:
        click.echo(_sentence(sent))


@dcudp.command("bench")
@click.argument("peer", metavar="[HOST:PORT]", required=False)
@click.option("--listen", help="Serve measurements at this address and port until Ctrl-C.")
@click.option(
    "--seconds",
    type=FiniteRange(min=0.1, max=86_400),
    default=5.0,
    show_default=True,
    help="How long to send.",
)
@_common
def bench_command(
    peer: str | None,
    listen: str | None,
    seconds: float,
    key_file: Path | None,
    rate_mbps: float | None,
    link_mbps: float | None,
    as_json: bool,
) -> None:
    """Measure the throughput to a `weir dcudp bench --listen` at HOST:PORT, with the CPU time of both ends.

    Without an address, both ends run here and the data passes through the loopback interface.
    """
    if peer and listen:
        raise click.UsageError("give either HOST:PORT or --listen")
    options = _options(key_file, rate_mbps, link_mbps, counts_load=listen is not None or peer is None)
    with _one_sentence():
        if listen:
            asyncio.run(serve_bench(listen, options, _report_json if as_json else _report_text))
            return
        measured = asyncio.run(measure(peer, seconds, options))
    click.echo(json.dumps(asdict(measured)) if as_json else measured.text())


@contextmanager
def _one_sentence() -> Iterator[None]:
    """An error of this package is one sentence, and Ctrl-C ends the command quietly."""
    try:
        yield
    except DcudpError as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt as error:
        raise SystemExit(INTERRUPTED) from error


def _report_text(event: str, **fields: Any) -> None:
    match event:
        case "listening":
            click.echo(f"listening on {fields['address']}")
        case "received":
            state: FileState = fields["state"]
            click.echo(f"{state.name}: {state.size} bytes received from {fields['peer']}")
        case "failed":
            click.echo(f"{fields['peer']}: {fields['error']}", err=True)


def _report_json(event: str, **fields: Any) -> None:
    state = fields.pop("state", None)
    if state is not None:
        fields |= state.as_json()
    click.echo(json.dumps({"event": event, **fields}))


def _sentence(sent: Sent) -> str:
    """What `weir dcudp send` prints."""
    state = sent.state
    if state.resumed == state.size and state.size:
        return f"{state.name}: the receiver had it already"
    resumed = f", after {state.resumed} bytes that the receiver had" if state.resumed else ""
    mbps = sent.rate_bps / MBPS
    return f"{state.name}: {state.size} bytes in {sent.seconds:.2f} s ({mbps:.1f} Mbit/s){resumed}"
