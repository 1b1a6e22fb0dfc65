"""The OpenFlow proxy: Open vSwitch on one end, a controller on the other, bytes in order between them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from openflow_ext.switch.errors import BadFraming, SwitchError
from openflow_ext.switch.openflow.flow_reports import Send
from openflow_ext.switch.openflow.messages import Framer
from openflow_ext.switch.openflow.own_requests import Verdict
from openflow_ext.switch.openflow.session import FROM_CONTROLLER, FROM_SWITCH, Session

log = logging.getLogger(__name__)

BUFFER_BYTES = 1 << 20
"""The bytes that may wait for a slow reader. While more wait, the other side is not read."""
CONNECT_S = 5.0
_TARGET = re.compile(r"(?:(tcp|ssl):(\[[0-9a-fA-F:.]+\]|[^:\[\]]+)(?::(\d+))?)|(?:(unix):(.+))")
_OPENFLOW_PORT = 6653
_LONGEST_UNIX_PATH = 107


@dataclass(frozen=True, slots=True)
class Controller:
    """The address of a controller: ``tcp:HOST[:PORT]``, ``ssl:HOST[:PORT]`` or ``unix:PATH``.

    The form is that of ovs-vsctl. With ``tls`` the connection uses TLS.
    """

    target: str
    host: str = ""
    port: int = _OPENFLOW_PORT
    path: str = ""
    tls: ssl.SSLContext | None = None

    @classmethod
    def parse(cls, target: str, tls: Callable[[], ssl.SSLContext] | None = None) -> Controller:
        """Parse ``target``. ``tls`` makes the TLS context of an ssl: target. Raises SwitchError."""
        match = _TARGET.fullmatch(target)
        port = int(match[3] or _OPENFLOW_PORT) if match else 0
        if match is None or not 1 <= port <= 65535:
            raise SwitchError(
                f"controller {target!r}: expected tcp:HOST[:PORT], ssl:HOST[:PORT] or unix:PATH"
            )
        context = tls() if tls is not None and match[1] == "ssl" else None
        return cls(target, (match[2] or "").strip("[]"), port, path=match[5] or "", tls=context)

    async def connect(self, end: _End) -> None:
        """Connect ``end`` to the controller. Raises OSError, TimeoutError."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(CONNECT_S):
            if self.path:
                await loop.create_unix_connection(lambda: end, self.path)
            else:
                await loop.create_connection(lambda: end, self.host, self.port, ssl=self.tls)


class _End(asyncio.Protocol):
    """One end of a proxied session. It reads messages, asks for verdicts and writes to the other end."""

    def __init__(
        self, act_on: frozenset[int], verdict_on: Callable[[bytes], Verdict], lost: Callable[[str], None]
    ) -> None:
        self._framer = Framer(act_on)
        self._verdict_on = verdict_on
        self._lost = lost
        self._answered_while_full = False
        self._held: deque[tuple[bool, bytes]] = deque()
        self.holding = False
        self.peer: _End | None = None
        self.transport: asyncio.Transport | None = None
        self.full = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(BUFFER_BYTES)
        # Later, because Python 3.11 starts to read after this call, even if the call pauses reading.
        asyncio.get_running_loop().call_soon(self.review_reading)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost(str(exc) if exc else "closed")

    def join(self, peer: _End) -> None:
        """Pass messages to ``peer`` from now on, and its messages to this end."""
        self.peer, peer.peer = peer, self
        self.review_reading()
        peer.review_reading()

    def review_reading(self) -> None:
        """Read only while the other end accepts data and this end accepts the answers to its messages."""
        if self.transport is None or self.transport.is_closing():
            return
        if self.peer is None or self.holding or self.peer.full or (self.full and self._answered_while_full):
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def pause_writing(self) -> None:
        self.full = True
        self._review_both()

    def resume_writing(self) -> None:
        self.full = self._answered_while_full = False
        self._review_both()

    def _review_both(self) -> None:
        self.review_reading()
        if self.peer is not None:
            self.peer.review_reading()

    def data_received(self, data: bytes) -> None:
        broken = ""
        try:
            self._held.extend(self._framer.feed(data))
        except BadFraming as error:
            broken = str(error)
        self.go_on()
        if broken:
            self._lost(broken)

    def go_on(self) -> None:
        """Handle the received messages, up to one that holds the rest back."""
        onward: list[bytes] = []
        back: list[bytes] = []
        while self._held and not self.holding:
            act_on, piece = self._held.popleft()
            verdict = self._verdict_on(piece) if act_on else Verdict(forward=piece)
            if verdict.wait:
                self._held.appendleft((act_on, piece))
                self.holding = True
                break
            onward.append(verdict.forward)
            back.append(verdict.answer)
            self.holding = verdict.hold
        if self.peer is not None:
            self.peer.write(b"".join(onward))
        answer = b"".join(back)
        if answer:
            self.write(answer)
            self._answered_while_full = self.full
        self.review_reading()

    def write(self, data: bytes) -> None:
        """Send ``data``. On a closed end this does nothing."""
        if data and self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()


class ProxiedSession:
    """A connection from Open vSwitch, joined to a connection to the controller while both are open."""

    def __init__(
        self,
        new_session: Callable[[str, Send], Session],
        controller: Controller,
        ended: Callable[[ProxiedSession, str], None],
    ) -> None:
        self.session = session = new_session(controller.target, self.notify)
        session.released = self._later
        self.connected = False
        self._controller = controller
        self._ended = ended
        self._over = False
        self.switch_end = _End(FROM_SWITCH, self._from_switch, self._end_of("Open vSwitch"))
        self._controller_end = _End(FROM_CONTROLLER, session.from_controller, self._end_of("controller"))

    def _from_switch(self, message: bytes) -> Verdict:
        """The verdict on a message of Open vSwitch. Messages of the controller may be waiting for it."""
        verdict = self.session.from_switch(message)
        self._later()
        return verdict

    def _later(self) -> None:
        """Let the messages of the controller go on that no longer have to wait."""
        if self._controller_end.holding and not self.session.holding:
            asyncio.get_running_loop().call_soon(self._release)

    def _release(self) -> None:
        if not self.session.holding:
            self._controller_end.holding = False
            self._controller_end.go_on()

    def send_due_request(self) -> None:
        """Send Open vSwitch the request that is due, if there is one."""
        self.switch_end.write(self.session.due())

    def _end_of(self, side: str) -> Callable[[str], None]:
        return lambda reason: self.end(f"{side}: {reason}")

    async def connect(self) -> None:
        """Connect to the controller and join both ends. If that fails the session ends."""
        try:
            await self._controller.connect(self._controller_end)
        except (OSError, TimeoutError) as error:
            self.end(f"controller: {error or f'no answer in {CONNECT_S:.0f} s'}")
            return
        if self._over:
            self._controller_end.close()
            return
        self.connected = True
        self.switch_end.join(self._controller_end)

    def notify(self, message: bytes) -> bool:
        """Send the agent's own ``message`` to the controller. False: lost, because it reads too slowly."""
        if self._controller_end.full:
            return False
        self._controller_end.write(message)
        return True

    def end(self, reason: str) -> None:
        """Close both ends, once."""
        if self._over:
            return
        self._over = True
        self.switch_end.close()
        self._controller_end.close()
        self.session.ended()
        self._ended(self, reason)


class Proxy:
    """The listener for the connections of one bridge to one controller."""

    def __init__(
        self, path: Path, controller: Controller, new_session: Callable[[str, Send], Session]
    ) -> None:
        self.path = path
        self.sessions: set[ProxiedSession] = set()
        self._controller = controller
        self._new_session = new_session
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._last_reason = ""

    @property
    def target(self) -> str:
        """The controller target that Open vSwitch gets."""
        return f"unix:{self.path}"

    async def listen(self) -> None:
        """Start listening. Raises SwitchError."""
        if len(os.fsencode(self.path)) > _LONGEST_UNIX_PATH:
            raise SwitchError(
                f"{self.path} has more than {_LONGEST_UNIX_PATH} bytes, too many for a Unix socket:"
                f" use a shorter bridge name"
            )
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_unix_server(self._accept, self.path)
            owner = self.path.parent.stat()
            os.chown(self.path, owner.st_uid, owner.st_gid)
            self.path.chmod(0o600)
        except OSError as error:
            raise SwitchError(f"cannot listen on {self.path}: {error.strerror}") from error

    def _accept(self) -> _End:
        proxied = ProxiedSession(self._new_session, self._controller, self._ended)
        self.sessions.add(proxied)
        task = asyncio.get_running_loop().create_task(proxied.connect())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return proxied.switch_end

    def _ended(self, proxied: ProxiedSession, reason: str) -> None:
        self.sessions.discard(proxied)
        if proxied.connected or reason != self._last_reason:
            log.info("%s <-> %s: session ended: %s", self.path.name, self._controller.target, reason)
        self._last_reason = "" if proxied.connected else reason

    async def close(self) -> None:
        """End all sessions and stop listening."""
        if self._server is not None:
            self._server.close()
        for proxied in list(self.sessions):
            proxied.end("the agent stops")
        for task in list(self._tasks):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self.path.unlink(missing_ok=True)
