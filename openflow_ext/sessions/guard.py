"""Guards an engine's OpenFlow sessions with ``core``, and its listener with limits and TLS.

``install`` extends the class Datapath of the engine's controller module and replaces StreamServer there.
Ryu's own listener ends at the first error of accept(), for example when file descriptors run out. With TLS
it consumes its context in the first connection, so that no second switch can connect.

With TLS, a certificate whose common name or alternative DNS names include ``dpid-`` and 16 hexadecimal
digits speaks for these datapath ids only.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import select
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from openflow_ext import engine
from openflow_ext.native_threads import has_native_threads
from openflow_ext.sessions.core import Claim, End, Sessions
from weir_base.log_limit import LogLimit, more_held_back

LOG = logging.getLogger(__name__)

ended_sessions: Counter[str] = Counter()
"""Sessions that were ended, by engine."""

_LOOK_EVERY_S = 1.0
_CLAIM_EVERY_S = 0.05
_ACCEPT_AGAIN_S = 0.2
_ACCEPT_EVERY_S = 0.005
"""A flood of connections leaves the other sessions their time. 500 switches connect in 2.5 s."""
_MOST_TLS_HANDSHAKES = 128
_TLS_HANDSHAKE_S = 10.0
_MOST_PORTS = 10_000
"""The engine and the apps keep every port that a switch describes."""
_OFPT_ECHO_REPLY, _OFPT_FEATURES_REPLY, _OFPT_PORT_STATUS, _OFPT_MULTIPART_REPLY = 3, 6, 12, 19
_OFPMP_PORT_DESC = 13
_PORT_STATUS_REASONS = (0, 1, 2)
_REFUSALS = {
    Claim.REFUSED: "another live session has the datapath id {:016x}",
    Claim.CHANGED: "it stated a second datapath id, {:016x}",
    Claim.TOO_MANY: "too many others were stated before the datapath id {:016x}: use TLS, and restart",
}
_DPID_NAME = re.compile(r"dpid-([0-9a-f]{16})", re.IGNORECASE)


def install(name: str) -> None:
    """Guard the sessions of the engine ``name`` ("ryu" or "os_ken"). Idempotent."""
    engine.load("base.app_manager", name)  # it and the controller import each other: only this order works
    controller = engine.load("controller.controller", name)
    if not hasattr(controller.Datapath, "hear"):
        hub = engine.load("lib.hub", name)
        guard = Guard(name, hub)
        if has_native_threads(hub):
            _end_with_its_switch(controller.Datapath, guard)
        _extend(controller.Datapath, guard)
        controller.StreamServer = _listener(hub, guard)


class Guard:
    """The sessions of the engine ``name``. ``hub`` is the engine's module for threads."""

    def __init__(self, name: str, hub: Any) -> None:
        self._name = name
        self._hub = hub
        self._sessions = Sessions()
        self._lock = threading.Lock()
        self._log_limit = LogLimit(1.0)
        self._watches = False
        self._handshakes: dict[Any, float] = {}

    def opened(self, datapath: Any) -> None:
        """A peer has connected."""
        datapath.described = set()
        with self._lock:
            ends = self._sessions.opened(datapath, _host(datapath.address), time.monotonic())
        self._end(ends)

    def closed(self, datapath: Any) -> None:
        """A session has ended."""
        with self._lock:
            self._sessions.closed(datapath)

    def heard(self, datapath: Any, msg: Any) -> None:
        """A message has arrived; None: one that was dropped."""
        answers = msg is not None and msg.msg_type == _OFPT_ECHO_REPLY
        with self._lock:
            self._sessions.heard(datapath, time.monotonic(), answers)

    def may_describe(self, datapath: Any, msg: Any) -> bool:
        """Whether the ports that the switch has described so far, also in ``msg``, are few enough.

        ``datapath.ports`` lacks ports that only apps receive: see ``_described``. A second
        FEATURES_REPLY empties it.
        """
        datapath.described.update(_described(msg))
        if max(len(datapath.described), len(getattr(datapath, "ports", None) or ())) <= _MOST_PORTS:
            return True
        self._end([End(datapath, f"it described more than {_MOST_PORTS} ports")])
        return False

    def may_claim(self, datapath: Any, dpid: int) -> bool:
        """Whether a session may have a datapath id. Waits for the echo reply of the session that has it."""
        if not _certificate_allows(datapath.socket, dpid):
            self._end([End(datapath, f"its certificate does not name dpid-{dpid:016x}")])
            return False
        while True:
            with self._lock:
                claim, holder = self._sessions.claim(datapath, dpid, time.monotonic())
            if claim is Claim.GRANTED:
                if holder is not None:
                    self._end([End(holder, "it does not answer, and its switch has connected again")])
                return True
            if claim in _REFUSALS:
                self._end([End(datapath, _REFUSALS[claim].format(dpid))])
                return False
            if holder is not None:
                self._hub.spawn(_probe, holder)
            self._hub.sleep(_CLAIM_EVERY_S)

    def sent(self, datapath: Any, send: Callable[[], bool]) -> bool:
        """Call ``send``, which may wait until the session's queue has room."""
        began = time.monotonic()
        with self._lock:
            self._sessions.blocked(datapath, began)
        sent = send()
        now = time.monotonic()
        with self._lock:
            ends = self._sessions.took(datapath, sent, now - began, now)
        self._end(ends)
        return sent

    def watch(self) -> None:
        """Probe and end sessions, once for all listeners. Does not return."""
        if self._watches:
            return
        self._watches = True
        while True:
            self._hub.sleep(_LOOK_EVERY_S)
            now = time.monotonic()
            with self._lock:
                probes, ends = self._sessions.look(now)
            for datapath in probes:
                self._hub.spawn(_probe, datapath)
            self._end(ends)
            for connection, began in list(self._handshakes.items()):
                if now - began > _TLS_HANDSHAKE_S:
                    _shut(connection)

    def with_tls(self, context: ssl.SSLContext, connection: Any, address: Any) -> Any:
        """``connection`` after its TLS handshake; None if that fails."""
        if len(self._handshakes) >= _MOST_TLS_HANDSHAKES:
            self._log(address, f"refused: {_MOST_TLS_HANDSHAKES} TLS handshakes are going on")
            connection.close()
            return None
        began = time.monotonic()
        try:
            connection.settimeout(_TLS_HANDSHAKE_S)
            # The wrapper takes over the descriptor: only through it can ``watch`` end the handshake.
            connection = context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
            self._handshakes[connection] = began
            connection.do_handshake()
            return self._shared(connection)
        except (OSError, ValueError) as error:  # ValueError: closed during the handshake
            self._log(address, f"TLS handshake failed: {error}")
            connection.close()
            return None
        finally:
            self._handshakes.pop(connection, None)

    def _shared(self, connection: ssl.SSLSocket) -> Any:
        """A connection that one thread reads while another one writes. Green threads need no lock."""
        return TlsConnection(connection) if has_native_threads(self._hub) else connection

    def _end(self, ends: Iterable[End]) -> None:
        for end in ends:
            ended_sessions[self._name] += 1
            datapath: Any = end.session
            dpid = "unknown" if datapath.id is None else f"{datapath.id:016x}"
            self._log(datapath.address, f"session of switch {dpid} ended: {end.reason}")
            # First, because close() waits for room in an app's queue, and the app may wait for this socket.
            _shut(datapath.socket)
            datapath.close()

    def _log(self, address: Any, text: str) -> None:
        with self._lock:
            held_back = self._log_limit.passes(_host(address), time.monotonic())
        if held_back is not None:
            LOG.warning("%s: %s%s", address, text, more_held_back(held_back))


class TlsConnection:
    """A TLS socket that is safe in two threads: OpenSSL does not allow that one reads while another writes.

    It has the methods of a socket that the engines use.
    """

    def __init__(self, connection: ssl.SSLSocket) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._timeout_s: float | None = None
        connection.setblocking(False)

    def settimeout(self, timeout_s: float | None) -> None:
        """The longest time for a call of ``recv`` or ``sendall`` to wait without progress."""
        self._timeout_s = timeout_s

    def recv(self, size: int) -> bytes:
        """As of a socket."""
        received: bytes = self._when_ready(lambda: self._connection.recv(size))
        return received

    def sendall(self, data: bytes) -> None:
        """As of a socket."""
        rest = memoryview(data)
        while rest:
            rest = rest[self._when_ready(partial(self._connection.send, rest)) :]

    def _when_ready(self, call: Callable[[], Any]) -> Any:
        while True:
            try:
                with self._lock:
                    return call()
            except ssl.SSLWantReadError:
                wanted = select.POLLIN
            except ssl.SSLWantWriteError:
                wanted = select.POLLOUT
            poll, descriptor = select.poll(), self._connection.fileno()
            if descriptor < 0:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            poll.register(descriptor, wanted)
            if not poll.poll(None if self._timeout_s is None else self._timeout_s * 1000):
                raise TimeoutError("timed out")

    def getpeercert(self) -> Any:
        """As of a TLS socket."""
        return self._connection.getpeercert()

    def setsockopt(self, *arguments: Any) -> None:
        """As of a socket."""
        self._connection.setsockopt(*arguments)

    def shutdown(self, how: int) -> None:
        """End the connection below TLS. A thread that waits for it returns."""
        socket.socket.shutdown(self._connection, how)

    def close(self) -> None:
        """As of a socket. OpenSSL must not use the descriptor meanwhile: the kernel gives it away again."""
        with self._lock:
            self._connection.close()


def _host(address: Any) -> str:
    """The IP address of a peer; empty for a Unix socket."""
    return str(address[0]) if isinstance(address, tuple) else ""


def _shut(connection: Any) -> None:
    """Let every call that waits for ``connection`` return.

    The method of a TLS socket would discard the state of TLS, which the waiting call still needs.
    """
    with contextlib.suppress(OSError):
        if isinstance(connection, ssl.SSLSocket):
            socket.SocketType.shutdown(connection, socket.SHUT_RDWR)  # Ryu replaces socket.socket
        else:
            connection.shutdown(socket.SHUT_RDWR)


def _described(msg: Any) -> Iterable[int]:
    """The numbers of the ports in a message of which the engine may keep none, but which apps receive.

    These are PORT_DESC replies after the handshake, and PORT_STATUS with an unknown reason.
    """
    if msg is None:
        return ()
    if msg.msg_type == _OFPT_MULTIPART_REPLY and getattr(msg, "type", None) == _OFPMP_PORT_DESC:
        return (port.port_no for port in msg.body)
    if msg.msg_type == _OFPT_PORT_STATUS and msg.reason not in _PORT_STATUS_REASONS:
        return (msg.desc.port_no,)
    return ()


def _probe(datapath: Any) -> None:
    datapath.send_msg(datapath.ofproto_parser.OFPEchoRequest(datapath))


def _certificate_allows(connection: Any, dpid: int) -> bool:
    """Whether the peer's certificate names ``dpid``, or no datapath id at all."""
    certificate = connection.getpeercert() if hasattr(connection, "getpeercert") else None
    if not certificate:
        return True
    names = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"]
    names += [value for part in certificate["subject"] for kind, value in part if kind == "commonName"]
    named = [found[1].lower() for found in map(_DPID_NAME.fullmatch, names) if found]
    return not named or f"{dpid:016x}" in named


def _extend(datapath_class: Any, guard: Guard) -> None:
    """Let the engine's Datapath report to ``guard``.

    A subclass in its place would not do: the class names itself in ``super(Datapath, self)``.
    """
    engine_serve, engine_send = datapath_class.serve, datapath_class.send

    def serve(self: Any) -> None:
        guard.opened(self)
        try:
            engine_serve(self)
        finally:
            guard.closed(self)

    def hear(self: Any, msg: Any) -> bool:
        """Whether the engine may handle ``msg``; None: a message that was dropped."""
        guard.heard(self, msg)
        if msg is None or msg.msg_type != _OFPT_FEATURES_REPLY:
            return guard.may_describe(self, msg)
        return guard.may_claim(self, msg.datapath_id)

    def send(self: Any, buf: bytes, close_socket: bool = False) -> bool:
        return guard.sent(self, lambda: engine_send(self, buf, close_socket))

    datapath_class.serve, datapath_class.hear, datapath_class.send = serve, hear, send


def _end_with_its_switch(datapath_class: Any, guard: Guard) -> None:
    """Let a session end when its switch has ended it, on an engine with native threads.

    The engine waits for its sending thread, which it cannot kill, and which waits for a message.
    """
    engine_receive, engine_send = datapath_class._recv_loop, datapath_class.send

    def receive(self: Any) -> None:
        try:
            engine_receive(self)
        finally:
            guard.closed(self)
            with contextlib.suppress(AttributeError):  # that thread ends just now
                engine_send(self, b"", close_socket=True)

    datapath_class._recv_loop = receive


def _context(keyfile: str, certfile: str, ca_certs: str | None) -> ssl.SSLContext:
    """A context for all connections. With ``ca_certs``, switches need a certificate of that CA."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certfile, keyfile)
    if ca_certs is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(ca_certs)
    else:
        LOG.warning("TLS without --ca-certs: any switch can connect")
    return context


def _listener(hub: Any, guard: Guard) -> Any:
    """A StreamServer for the engine's controller."""

    class Listener:
        def __init__(self, listen_info: Any, handle: Callable[..., None], **tls: Any) -> None:
            self._context = _context(tls["keyfile"], tls["certfile"], tls.get("ca_certs")) if tls else None
            self._socket = hub.StreamServer(listen_info, handle).server
            self._handle = handle

        def serve_forever(self) -> None:
            hub.spawn(guard.watch)
            while True:
                try:
                    connection, address = self._socket.accept()
                except OSError as error:
                    LOG.warning("accept: %s", error)
                    hub.sleep(_ACCEPT_AGAIN_S)
                    continue
                hub.spawn(self._serve, connection, address)
                hub.sleep(_ACCEPT_EVERY_S)

        def _serve(self, connection: Any, address: Any) -> None:
            if self._context is not None:
                connection = guard.with_tls(self._context, connection, address)
            if connection is not None:
                self._handle(connection, address)

    return Listener
