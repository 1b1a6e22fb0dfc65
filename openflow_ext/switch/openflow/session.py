"""One controller's session with one bridge: what the agent does with each message. No sockets here."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial

from openflow_ext import wire
from openflow_ext.switch.dataplane.interface import DataPlaneError, QueueEvent, QueueEventKind
from openflow_ext.switch.errors import Declined
from openflow_ext.switch.openflow import extension_requests
from openflow_ext.switch.openflow import messages as of
from openflow_ext.switch.openflow.bridge import Bridge
from openflow_ext.switch.openflow.bundles import is_bundle_message
from openflow_ext.switch.openflow.flow_entries import FlowEntries
from openflow_ext.switch.openflow.flow_reports import Listener, Send
from openflow_ext.switch.openflow.own_requests import OwnRequests, Verdict
from openflow_ext.switch.ovs.ports import Port

log = logging.getLogger(__name__)

FROM_CONTROLLER = frozenset(
    {
        of.OFPT_BUNDLE_ADD_MESSAGE,
        of.OFPT_BUNDLE_CONTROL,
        of.OFPT_EXPERIMENTER,
        of.OFPT_FLOW_MOD,
        of.OFPT_GROUP_MOD,
        of.OFPT_METER_MOD,
        of.OFPT_MULTIPART_REQUEST,
        of.OFPT_ROLE_REQUEST,
    }
)
FROM_SWITCH = frozenset(
    {
        of.OFPT_BUNDLE_CONTROL,
        of.OFPT_ERROR,
        of.OFPT_EXPERIMENTER,
        of.OFPT_FEATURES_REPLY,
        of.OFPT_FLOW_REMOVED,
        of.OFPT_PORT_STATUS,
        of.OFPT_MULTIPART_REPLY,
        of.OFPT_ROLE_REPLY,
        of.OFPT_ROLE_STATUS,
    }
)

_OFPPR_DELETE = 1
_PORT_SIZE = 64
_PORT_STATUS_SIZE = 16
"""The size of OFPT_PORT_STATUS without its port."""
_VERSIONS = (of.OFP13, of.OFP15)


class Session:
    """One session. ``controller`` is the controller's name in the log; ``send`` sends it a message.

    ``released`` is called when the session stops holding for another reason than a message of Open vSwitch.
    """

    def __init__(self, bridge: Bridge, controller: str, send: Send) -> None:
        self._bridge = bridge
        self._send = send
        self._name = f"{bridge.name} <-> {controller}"
        self._own = OwnRequests()
        self._entries = FlowEntries(bridge.table, self._own, self._name)
        self._version = 0
        self._descriptions: dict[int, wire.OfpPort] = {}
        self._role_request: bytes | None = None
        self._waits = False
        self.released: Callable[[], None] = lambda: None
        self.ready = False

    @property
    def holding(self) -> bool:
        """Whether the controller's messages wait for an answer of Open vSwitch."""
        return self._entries.holding or self._role_request is not None or self._waits

    def due(self) -> bytes:
        """A request that the agent has to send to Open vSwitch now; empty if there is none."""
        return self._entries.due(self._version)

    def from_controller(self, message: bytes) -> Verdict:
        """The verdict on a message of one of the types FROM_CONTROLLER."""
        if message[0] < of.OFP13:
            return Verdict(forward=message)
        if message[1] == of.OFPT_ROLE_REQUEST:
            # Open vSwitch may refuse the role, so the messages behind the request wait for its answer.
            self._role_request = message[4:8]
            if _role(message) == of.OFPCR_ROLE_MASTER:
                self._bridge.roles.contests(self)
            return Verdict(forward=message, hold=True)
        if self._acts(message) and self._bridge.roles.is_contested(self):
            self._waits = True
            self._bridge.roles.wait(self, self._go_on)
            return Verdict(wait=True)
        if self._changes_entries(message) and self._bridge.roles.is_slave(self):
            return Verdict(forward=message)  # Open vSwitch refuses it before it looks at the actions
        if message[1] == of.OFPT_FLOW_MOD:
            return self._entries.flow_mod(message)
        if message[1] in (of.OFPT_GROUP_MOD, of.OFPT_METER_MOD):
            return self._group_or_meter_mod(message)
        if is_bundle_message(message):
            return self._entries.bundled(message)
        if wire.is_extension_message(message):
            return Verdict(answer=self._answer(message))
        return Verdict(forward=message)

    def _acts(self, message: bytes) -> bool:
        return self._changes_entries(message) or wire.is_extension_message(message)

    def _go_on(self) -> None:
        """No other session can become MASTER any more: the message that waits can be judged."""
        self._waits = False
        self.released()

    @staticmethod
    def _changes_entries(message: bytes) -> bool:
        return message[1] == of.OFPT_FLOW_MOD or is_bundle_message(message)

    def _answer(self, message: bytes) -> bytes:
        bridge = self._bridge
        try:
            return extension_requests.answer(
                message,
                bridge.ports,
                bridge.dataplane,
                partial(self._listen, message[0]),
                bridge.roles.is_slave(self),
            )
        except Declined as declined:
            log.warning("%s: extension message refused: %s", self._name, declined)
            return declined.answer

    def _listen(self, version: int, config: wire.FlowReportConfig) -> None:
        """Carry out FLOW_REPORT_CONFIG. It may come before FEATURES_REPLY, so it states the version."""
        listener = Listener(self._bridge.number, config, version, self._send)
        self._bridge.reports.ask(self, listener)

    def ended(self) -> None:
        """The session has ended: release its role and its flow reports."""
        self._bridge.roles.left(self)
        try:
            self._bridge.reports.leave(self)
        except DataPlaneError as error:
            log.error("%s: its flow reports cannot be switched off: %s", self._name, error)

    def _group_or_meter_mod(self, message: bytes) -> Verdict:
        check = self._entries.check(message[0]) if of.removes_entries(message) else b""
        return Verdict(forward=message + check)

    def from_switch(self, message: bytes) -> Verdict:
        """The verdict on a message of one of the types FROM_SWITCH."""
        if self._answers_role_request(message):
            self._role_request = None
            if message[1] == of.OFPT_ERROR:
                self._bridge.roles.settled(self)
        match message[1]:
            case of.OFPT_ERROR:
                return self._error(message)
            case of.OFPT_FEATURES_REPLY:
                return self._features(message)
            case of.OFPT_MULTIPART_REPLY:
                own = self._own.take(message)
                return own or Verdict(forward=self._entries.whole(message))
            case of.OFPT_PORT_STATUS:
                self._port_status(message)
            case of.OFPT_FLOW_REMOVED if message[0] >= of.OFP13:
                self._entries.removed(message)
            case of.OFPT_BUNDLE_CONTROL | of.OFPT_EXPERIMENTER:
                if is_bundle_message(message) and self._entries.answers_discard(message):
                    return Verdict()
            case of.OFPT_ROLE_REPLY:
                self._bridge.roles.given(self, _role(message))
                self._bridge.roles.settled(self)
            case of.OFPT_ROLE_STATUS if message[0] > of.OFP13:
                self._bridge.roles.given(self, _role(message))
        return Verdict(forward=message)

    def _answers_role_request(self, message: bytes) -> bool:
        """Whether a message is the answer for which the controller's messages wait.

        An error has to quote a role request: it may be about an earlier message with the same xid.
        """
        if message[4:8] != self._role_request:
            return False
        if message[1] != of.OFPT_ERROR:
            return message[1] == of.OFPT_ROLE_REPLY
        at = of.quoted_at(message) + 1
        return message[at : at + 1] == bytes([of.OFPT_ROLE_REQUEST])

    def _error(self, message: bytes) -> Verdict:
        if self._entries.answers_discard(message):
            return Verdict()
        return self._own.take(message) or self._entries.refused(message)

    def _features(self, message: bytes) -> Verdict:
        """The controller's handshake is complete: the agent requests the ports and the entries."""
        if self._version:
            return Verdict(forward=message)
        self._version = message[0]
        check = self._entries.check(self._version) if self._version >= of.OFP13 else b""
        if self._version not in _VERSIONS:
            log.warning(
                "%s: no queue alarms in OpenFlow version %d: use 1.3 or 1.5", self._name, self._version
            )
            return Verdict(forward=message, answer=check)
        ports = self._own.ask(partial(of.port_desc_request, self._version), self._port_descriptions)
        return Verdict(forward=message, answer=ports + check)

    def _port_descriptions(self, message: bytes, last: bool) -> Verdict:
        for raw in self._ports_in(message[16:]):
            self._describe(raw)
        if last:
            self.ready = True
            log.info("%s: session is up", self._name)
        return Verdict()

    def _ports_in(self, data: bytes) -> Iterator[bytes]:
        """The ofp_ports in ``data``, divided by their lengths."""
        while data:
            size = _PORT_SIZE if self._version == of.OFP13 else int.from_bytes(data[4:6], "big")
            size = size or len(data)
            yield data[:size]
            data = data[size:]

    def _port_status(self, message: bytes) -> None:
        if self._version not in _VERSIONS or len(message) < _PORT_STATUS_SIZE:
            return
        if message[8] == _OFPPR_DELETE:
            self._descriptions.pop(int.from_bytes(message[16:20], "big"), None)
        else:
            self._describe(message[16:])

    def _describe(self, raw: bytes) -> None:
        try:
            port = wire.decode_port(raw, self._version)
        except wire.WireError as error:
            log.warning("%s: a port description is ignored: %s", self._name, error)
        else:
            self._descriptions[port.port_no] = port

    def event(self, port: Port, event: QueueEvent, ranks: range) -> bytes:
        """The messages that report a queue event to this controller; empty until its handshake is complete.

        ``ranks``: the reflex entries that were activated or released.
        """
        description = self._descriptions.get(port.link.ofport)
        if not self.ready or description is None:
            return b""
        messages = notices(port, event, ranks, description)
        framing = self._bridge.framing
        return b"".join(wire.encode_message(m, self._version, framing=framing) for m in messages)


def _role(message: bytes) -> int:
    return int.from_bytes(message[8:12], "big")


def notices(port: Port, event: QueueEvent, ranks: range, description: wire.OfpPort) -> list[wire.Message]:
    """The messages that report a queue event to a controller."""
    if event.kind in (QueueEventKind.REFLEX_ON, QueueEventKind.REFLEX_OFF):
        return [_reflex(port, event, rank) for rank in ranks]
    kind = wire.BufNormal if event.normal else wire.BufAlarm
    message = kind(
        port=description,
        port_buf_pkts=event.queue_pkts,
        port_buf_bytes=event.queue_bytes,
        port_rate_bps=port.capacity_bps,
        cookie=port.settings.cookie,
        priority=port.settings.priority,
        n_i=event.n_i,
        crossing_ns=event.crossing_ns,
        non_tcp_percent=event.non_tcp_percent,
        allowance_bytes=event.allowance_bytes,
    )
    return [message]


def _reflex(port: Port, event: QueueEvent, rank: int) -> wire.Reflex:
    return wire.Reflex(
        port_no=port.link.ofport,
        rank=rank,
        on=event.kind is QueueEventKind.REFLEX_ON,
        n_i=event.n_i,
        cookie=port.armed[rank].cookie if rank < len(port.armed) else 0,
        when_ns=event.crossing_ns,
    )
