"""The transports of the hosts in a run: chosen, and loaded if the kernel does not have them."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from mininet_topos.errors import LabError, Unable
from mininet_topos.experiments.baselines import BASELINES, TCP_PROGRAM, Baseline
from mininet_topos.experiments.plot_style import PlotStyle
from mininet_topos.experiments.schemes import Scheme
from mininet_topos.machine.commands import built, command, run
from mininet_topos.machine.lab_state import LabState


@dataclass(frozen=True, slots=True)
class HostTransport:
    """A name for TCP_CONGESTION, and net.ipv4.tcp_ecn of the sockets' network namespace.

    ``congestion_control`` is empty if the transport is not TCP. ``program``: its traffic program.
    """

    name: str
    congestion_control: str
    tcp_ecn: int
    program: str = TCP_PROGRAM


def provide(names: Sequence[str], state: LabState) -> tuple[HostTransport, ...]:
    """Return the transports of baselines, or of plain congestion controls, by their names.

    Weir's own congestion controls are loaded until `state` is released. Raises Unable if the kernel does not
    have a congestion control and cannot load it, or if a traffic program is not built.
    """
    found = []
    for name in names:
        wanted = _baseline(name)
        _require(wanted)
        if wanted.is_ours and not settable(wanted.congestion_control):
            _load(wanted.congestion_control, state)
        found.append(HostTransport(name, wanted.congestion_control, wanted.tcp_ecn, wanted.program))
    return tuple(found)


def require_transports(scheme: Scheme, congestion_control: str) -> None:
    """Raise Unable, with the scheme's name and the remedy, if this machine lacks a transport of a scheme.

    `congestion_control`: of the hosts, if the scheme names none.
    """
    if scheme.receiver:
        try:
            run(command("weir"), "transports", scheme.receiver, "check")
        except LabError as error:
            raise Unable(f"scheme {scheme.name}: {error}") from error
    for name in scheme.transports or (congestion_control,):
        try:
            _require(_baseline(name))
        except Unable as error:
            raise Unable(f"scheme {scheme.name}: {error}") from error


def _require(wanted: Baseline) -> None:
    """Raise Unable, with the remedy, if this machine lacks a transport that the lab cannot load.

    So it does if one of Weir's controls is loaded from another build: the lab would measure that one.
    """
    control = wanted.congestion_control
    if not wanted.is_tcp:
        _require_program(wanted)
    elif not wanted.is_ours:
        if not settable(control):
            remedy = f"modprobe tcp_{control}, or use another kernel"
            raise Unable(f"{wanted.name} needs the congestion control {control}: {remedy}")
    elif settable(control) and not _is_of_this_build(control):
        raise Unable(f"{control} is of another build: `weir transports load {control}` replaces it")


def _require_program(wanted: Baseline) -> None:
    try:
        built(wanted.program)
    except Unable as error:
        first = f"; it needs {wanted.package}: `make setup` installs it" if wanted.package else ""
        raise Unable(f"{error}{first}") from None


def _baseline(name: str) -> Baseline:
    return BASELINES.get(name) or Baseline(name, name, PlotStyle(name, ""))


def _is_of_this_build(congestion_control: str) -> bool:
    rows = json.loads(run(command("weir"), "transports", "list", "--json"))
    return any(row["this_build"] for row in rows if row["name"] == congestion_control)


def settable(congestion_control: str) -> bool:
    """Whether a socket can have a congestion control. As root, the attempt loads a kernel module."""
    with socket.socket() as tcp:
        try:
            tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion_control.encode())
        except OSError:
            return False
    return True


def _load(congestion_control: str, state: LabState) -> None:
    try:
        answer = run(command("weir"), "transports", "load", congestion_control, "--json")
    except LabError as error:
        raise Unable(f"{congestion_control} cannot be loaded: {error}") from error
    if json.loads(answer)["state"] == "loaded":
        state.note_transport(congestion_control)
