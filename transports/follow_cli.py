"""The command `weir transports follow`."""

from __future__ import annotations

import ipaddress
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import click

from transports import pacing_paths
from transports.bottlenecks import Controller, ControllerError
from transports.congestion import TransportError
from transports.follower import MOST_FOLLOWED, Follower, KernelPaths, Round
from transports.pacing_cli import in_namespaces, k_option, pids_option
from transports.pacing_paths import Address
from weir_base.parameters import FiniteRange
from weir_base.signals import Awaited, awaited

LEAST_PAUSE_S = 0.02
MOST_PAUSE_S = 5.0
"""The pause between questions doubles up to this while the controller does not answer."""


def _addresses(_context: click.Context, _parameter: click.Parameter, values: Sequence[str]) -> list[Address]:
    try:
        return [ipaddress.ip_address(value) for value in values]
    except ValueError as error:
        raise click.BadParameter(f"{error}: give an address such as 10.0.0.1") from error


@click.command("follow")
@click.option("--controller", "url", required=True, help="URL of the dashboard: https://HOST[:PORT].")
@click.option(
    "--token-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File with a token in its first line: weir accounts add-token NAME.",
)
@click.option(
    "--ca-certificate",
    "ca_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Certificates of the authorities that vouch for the dashboard. Default: the system's.",
)
@click.option(
    "--to",
    "always",
    multiple=True,
    callback=_addresses,
    help="Follow this destination before anything is sent to it, too. Repeatable.",
)
@click.option(
    "--every-s",
    type=FiniteRange(LEAST_PAUSE_S, 60),
    default=0.5,
    show_default=True,
    help="Seconds between two questions. The switches count every [telemetry] sample_s.",
)
@click.option(
    "--lifetime-s",
    type=FiniteRange(0.1, 3600),
    default=12.0,
    show_default=True,
    help="How long n counts after the switch counted it. An n that does not change is recorded every 10 s.",
)
@k_option
@pids_option
def follow_command(
    url: str,
    token_file: Path | None,
    ca_file: Path | None,
    always: list[Address],
    every_s: float,
    lifetime_s: float,
    k: float,
    pids: tuple[int, ...],
) -> None:
    """Follow what the controller knows of the bottlenecks towards this host's destinations.

    For each destination of a paced connection, n, B and C come from the port to which that host is attached.
    They are written as a path of `weir transports path`, and removed at the end (SIGTERM).
    """
    controller = Controller(url, _token(token_file), ca_file)
    namespaces = in_namespaces(pids, pacing_paths.this_namespace)
    follower = Follower(controller.ask, KernelPaths(), namespaces, always, lifetime_s, k)
    with awaited(signal.SIGTERM, signal.SIGINT) as ended:
        try:
            _follow(follower, every_s, ended)
        finally:
            controller.close()
            with suppress(TransportError):  # nothing is left if the last control is unloaded
                follower.end()


def _follow(follower: Follower, every_s: float, ended: Awaited) -> None:
    before, pause_s = Round(), every_s
    while True:
        done = follower.round()
        if replace(done, refused=()) != replace(before, refused=()) or len(done.refused) != len(
            before.refused
        ):
            click.echo(_said(done), err=bool(done.error or done.refused))
        before = done
        pause_s = min(2 * pause_s, max(MOST_PAUSE_S, every_s)) if done.error else every_s
        if ended.wait(pause_s):
            return


def _said(done: Round) -> str:
    """The outcome of a round in a line."""
    parts = [f"{done.written} paths to {done.asked} destinations"]
    if done.error:
        parts = [f"{done.error}; n counts until it is too old, then this host counts"]
    if done.unknown:
        parts.append(f"the controller knows no sampled port of {', '.join(map(str, done.unknown[:5]))}")
    if done.limited:
        parts.append(f"only the first {MOST_FOLLOWED} are followed; to the others this host counts itself")
    parts += [f"refused: {why}" for why in done.refused[:5]]
    return "; ".join(parts)


def _token(file: Path | None) -> str:
    if file is None:
        return ""
    try:
        token = file.read_text(encoding="utf-8").partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ControllerError(f"cannot read the token: {error}") from error
    if not token:
        raise ControllerError(f"{file} has no token in its first line: weir accounts add-token NAME >{file}")
    return token
