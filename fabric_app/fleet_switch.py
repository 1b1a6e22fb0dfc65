"""Commands that turn all switches off or on, and the answers of the switches. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from flowdb.commands import Command

ANSWER_NS = 3_000_000_000
"""A switch that has not answered after this time is named in the outcome."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a command. It succeeded if every connected switch carried it out."""

    command: Command
    succeeded: bool
    text: str


@dataclass(slots=True)
class _Asked:
    """A command that was sent to switches: whose answers are awaited, and the switches that answered."""

    command: Command
    until_ns: int
    awaited: dict[tuple[int, int], None]
    done: list[int] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)


class FleetSwitch:
    """The commands that wait for answers of switches."""

    def __init__(self) -> None:
        self._asked: list[_Asked] = []

    def asked(self, command: Command, requests: Iterable[tuple[int, int]], now_ns: int) -> None:
        """A command was sent to switches; ``requests`` are their datapath ids with the xids."""
        self._asked.append(_Asked(command, now_ns + ANSWER_NS, dict.fromkeys(requests)))

    def answered(self, dpid: int, xid: int, carried_out: bool) -> bool:
        """A switch answered a message. False if no command awaits the answer."""
        for asked in self._asked:
            if (dpid, xid) in asked.awaited:
                del asked.awaited[dpid, xid]
                (asked.done if carried_out else asked.refused).append(dpid)
                return True
        return False

    def outcomes(self, now_ns: int) -> list[Outcome]:
        """The commands that all their switches have answered, or whose time has passed."""
        ended = [one for one in self._asked if not one.awaited or now_ns >= one.until_ns]
        self._asked = [one for one in self._asked if one not in ended]
        return [_outcome(one) for one in ended]


def _outcome(asked: _Asked) -> Outcome:
    silent = [dpid for dpid, _ in asked.awaited]
    parts = [f"{asked.command.kind} at {_named(asked.done)}"]
    if asked.refused:
        parts.append(f"refused by {_named(asked.refused)}, which runs no agent or an older one")
    if silent:
        parts.append(f"no answer from {_named(silent)}")
    succeeded = bool(asked.done) and not asked.refused and not silent
    return Outcome(asked.command, succeeded, "; ".join(parts))


def _named(dpids: list[int]) -> str:
    names = ", ".join(f"{dpid:016x}" for dpid in sorted(dpids))
    return f"{len(dpids)} connected switches" + (f" ({names})" if names else "")
