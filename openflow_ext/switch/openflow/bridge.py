"""One extended bridge: its part of the data plane, and the roles of its controllers' sessions."""

from __future__ import annotations

from collections.abc import Hashable
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

    def given(self, session: Hashable, role: int) -> None:
        """Open vSwitch states a session's role. A new MASTER makes the previous one a SLAVE."""
        if role == of.OFPCR_ROLE_MASTER:
            for other in [other for other, has in self._given.items() if has == of.OFPCR_ROLE_MASTER]:
                self._given[other] = of.OFPCR_ROLE_SLAVE
        self._given[session] = role

    def left(self, session: Hashable) -> None:
        """A session has ended."""
        self._given.pop(session, None)

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
