"""An extended bridge: Open vSwitch's, the data plane's part of it, and who may change what there."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from openflow_ext import wire
from openflow_ext.switch import openflow as of
from openflow_ext.switch.dataplane import DataPlane
from openflow_ext.switch.ports import Ports
from openflow_ext.switch.reports import FlowReports
from openflow_ext.switch.table import ExtensionTable


class Roles:
    """The roles of a bridge's sessions, as Open vSwitch gives them: one MASTER at most.

    What a session asks for counts from when it asks, so that it may act on it in its next message.
    """

    def __init__(self) -> None:
        self._given: dict[Hashable, int] = {}
        self._asked: dict[Hashable, int] = {}

    def asked(self, session: Hashable, role: int) -> None:
        """A session asks for a role (OFPT_ROLE_REQUEST)."""
        if role != of.OFPCR_ROLE_NOCHANGE:
            self._asked[session] = role

    def given(self, session: Hashable, role: int) -> None:
        """Open vSwitch says what a session's role is now; a new MASTER makes a SLAVE of the one before."""
        self._asked.pop(session, None)
        if role == of.OFPCR_ROLE_MASTER:
            for other in [other for other, has in self._given.items() if has == of.OFPCR_ROLE_MASTER]:
                self._given[other] = of.OFPCR_ROLE_SLAVE
        self._given[session] = role

    def refused(self, session: Hashable) -> None:
        """Open vSwitch refused a session's request for a role."""
        self._asked.pop(session, None)

    def left(self, session: Hashable) -> None:
        """A session is over."""
        self._given.pop(session, None)
        self._asked.pop(session, None)

    def is_slave(self, session: Hashable) -> bool:
        """Whether a session may only read."""
        role = self._asked.get(session, self._given.get(session))
        return role == of.OFPCR_ROLE_SLAVE


@dataclass(slots=True, eq=False)
class Bridge:
    """One extended bridge; ``number`` is its name in the data plane."""

    name: str
    number: int
    dataplane: DataPlane
    ports: Ports
    table: ExtensionTable
    reports: FlowReports
    framing: wire.Framing = "experimenter"
    roles: Roles = field(default_factory=Roles)
