"""One extended bridge: its part of the data plane, and the roles of its controllers' sessions."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from openflow_ext import wire
from openflow_ext.switch.dataplane.interface import DataPlane
from openflow_ext.switch.openflow import messages as of
from openflow_ext.switch.openflow.extension_table import ExtensionTable
from openflow_ext.switch.openflow.flow_reports import FlowReports
from openflow_ext.switch.ovs.ports import Ports


class Roles:
    """The roles of a bridge's sessions, as Open vSwitch gives them. At most one session is MASTER.

    A requested role does not count: Open vSwitch may refuse it.
    """

    def __init__(self) -> None:
        self._given: dict[Hashable, int] = {}
        self._contests: dict[Hashable, None] = {}
        self._waiting: dict[Hashable, Callable[[], None]] = {}

    def contests(self, session: Hashable) -> None:
        """A session requests to be MASTER."""
        self._contests[session] = None

    def settled(self, session: Hashable) -> None:
        """Open vSwitch has answered the role request of a session, or the session has ended."""
        if self._contests.pop(session, self) is not self and not self._contests:
            waiting, self._waiting = self._waiting, {}
            for go_on in waiting.values():
                go_on()

    def is_contested(self, session: Hashable) -> bool:
        """Whether a session is MASTER, and another one may just become it."""
        return self._given.get(session) == of.OFPCR_ROLE_MASTER and any(
            other is not session for other in self._contests
        )

    def wait(self, session: Hashable, go_on: Callable[[], None]) -> None:
        """Call ``go_on`` when no role request is open."""
        self._waiting[session] = go_on

    def given(self, session: Hashable, role: int) -> None:
        """Open vSwitch states a session's role. A new MASTER makes the previous one a SLAVE."""
        if role == of.OFPCR_ROLE_MASTER:
            for other in [other for other, has in self._given.items() if has == of.OFPCR_ROLE_MASTER]:
                self._given[other] = of.OFPCR_ROLE_SLAVE
        self._given[session] = role

    def left(self, session: Hashable) -> None:
        """A session has ended."""
        self._given.pop(session, None)
        self._waiting.pop(session, None)
        self.settled(session)

    def is_slave(self, session: Hashable) -> bool:
        """Whether a session is a SLAVE, which may only read."""
        return self._given.get(session) == of.OFPCR_ROLE_SLAVE


@dataclass(slots=True, eq=False)
class Bridge:
    """One extended bridge. ``number`` identifies it in the data plane."""

    name: str
    number: int
    dataplane: DataPlane
    ports: Ports
    table: ExtensionTable
    reports: FlowReports
    framing: wire.Framing = "experimenter"
    roles: Roles = field(default_factory=Roles)
