"""Chooses the controller framework, Ryu or os-ken. Apps import the framework's names from here.

    from openflow_ext.engine import app_manager, ofp_event, set_ev_cls, MAIN_DISPATCHER

The engine is ``$WEIR_ENGINE`` (``ryu`` or ``os_ken``) if that is set. Otherwise it is the engine that this
process has already imported, or Ryu if it is installed, or os-ken. This module chooses and imports it when
a name is first used, because ``ryu-manager`` must patch the standard library before that.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import signal
import sys
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import greenlet

if TYPE_CHECKING:
    # Both engines lack type annotations. These are the parts that Weir's classes derive from or call.
    _Handler = TypeVar("_Handler", bound=Callable[..., None])

    class EventBase:
        """An event that apps send each other."""

    class App:
        """The engine's base class of applications."""

        name: str
        logger: logging.Logger
        threads: list[Any]
        events: Any
        is_active: bool

        def __init__(self, *args: Any, **kwargs: Any) -> None: ...
        def start(self) -> Any: ...
        def close(self) -> None: ...
        def send_event(self, name: str, ev: EventBase) -> None: ...
        def send_event_to_observers(self, ev: EventBase) -> None: ...

    def set_ev_cls(ev_cls: Any, dispatchers: Any = None) -> Callable[[_Handler], _Handler]:
        """Make a method the handler of one or more kinds of event, in the given states of a session."""


ENGINES = ("ryu", "os_ken")

_MODULES = {
    "app_manager": "base.app_manager",
    "cfg": "cfg",
    "controller": "controller.controller",
    "dpid": "lib.dpid",
    "event": "controller.event",
    "handler": "controller.handler",
    "hub": "lib.hub",
    "ip": "lib.ip",
    "mac": "lib.mac",
    "ofp_event": "controller.ofp_event",
    "ofproto_parser": "ofproto.ofproto_parser",
    "ofproto_v1_3": "ofproto.ofproto_v1_3",
    "ofproto_v1_3_parser": "ofproto.ofproto_v1_3_parser",
    "ofproto_v1_5": "ofproto.ofproto_v1_5",
    "ofproto_v1_5_parser": "ofproto.ofproto_v1_5_parser",
}
_PACKETS = "arp ether_types ethernet icmp icmpv6 in_proto ipv4 ipv6 lldp packet tcp udp vlan"
_MODULES |= {name: f"lib.packet.{name}" for name in _PACKETS.split()}
_HANDLER_NAMES = (
    "HANDSHAKE_DISPATCHER",
    "CONFIG_DISPATCHER",
    "MAIN_DISPATCHER",
    "DEAD_DISPATCHER",
    "set_ev_cls",
    "set_ev_handler",
)
_APP_CLASSES = {"ryu": "RyuApp", "os_ken": "OSKenApp"}


class EngineError(Exception):
    """No engine can be used; the message says what to do."""


def __getattr__(attribute: str) -> Any:
    """``name``, the base classes ``App`` and ``EventBase``, or a name of the framework."""
    if attribute == "name":
        value: Any = _choose()
    elif attribute == "App":
        engine = sys.modules[__name__].name
        value = getattr(load("base.app_manager", engine), _APP_CLASSES[engine])
    elif attribute == "EventBase":
        value = load("controller.event").EventBase
    elif attribute in _MODULES:
        value = load(_MODULES[attribute])
    elif attribute in _HANDLER_NAMES:
        value = getattr(load("controller.handler"), attribute)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {attribute!r}")
    globals()[attribute] = value
    return value


def load(module: str, engine: str | None = None) -> Any:
    """Import ``module`` (for example ``controller.ofp_event``) of ``engine``; default: the chosen engine."""
    engine = engine or sys.modules[__name__].name
    if engine == "ryu":
        _repair_eventlet()
    return importlib.import_module(f"{engine}.{module}")


def _choose() -> str:
    if wanted := os.environ.get("WEIR_ENGINE"):
        if wanted not in ENGINES:
            raise EngineError(f"WEIR_ENGINE is {wanted!r}; set it to {' or '.join(ENGINES)}, or unset it")
        if importlib.util.find_spec(wanted) is None:
            raise EngineError(f"WEIR_ENGINE is {wanted!r}, which is not installed; install it or unset it")
        return wanted
    for engine in ENGINES:
        if engine in sys.modules:
            return engine
    for engine in ENGINES:
        if importlib.util.find_spec(engine) is not None:
            return engine
    raise EngineError("neither Ryu nor os-ken is installed; run make setup")


def _repair_eventlet() -> None:
    """Define eventlet.wsgi.ALREADY_HANDLED, which ryu.app.wsgi imports and new versions of eventlet lack.

    Ryu returns it after a WebSocket session, so that the server writes no response. A new eventlet uses
    WSGI_LOCAL.already_handled for that, which its WebSocketWSGI sets itself. The returned value only has to
    be an empty iterable. After a refused upgrade the flag is not set, and the server sends the status.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"\s*Eventlet is deprecated")
        wsgi: Any = importlib.import_module("eventlet.wsgi")
    if not hasattr(wsgi, "ALREADY_HANDLED"):
        wsgi.ALREADY_HANDLED = ()


def ryu_manager() -> None:
    """The ``ryu-manager`` command: Ryu's own, repaired for a current eventlet.

    It listens on loopback unless ``--ofp-listen-host`` or ``--wsapi-host`` is given. SIGTERM stops it in
    the same orderly way as Ctrl-C.
    """
    wanted = os.environ.get("WEIR_ENGINE", "ryu")
    if wanted != "ryu":
        sys.exit(f"ryu-manager runs Ryu, but WEIR_ENGINE is {wanted!r}; unset it, or use weir controller")
    manager = load("cmd.manager", "ryu")
    settings = load("cfg", "ryu").CONF
    for listener in ("ofp_listen_host", "wsapi_host"):
        settings.set_default(listener, "127.0.0.1")
    _stop_from_the_main_greenlet()
    manager.main()


def _stop_from_the_main_greenlet() -> None:
    """Let SIGTERM and Ctrl-C stop Ryu, whichever greenlet is running.

    Python raises KeyboardInterrupt in the running greenlet. If that is one of Ryu's own, Ryu logs an
    uncaught exception and the manager continues. So the interrupt is raised in the main greenlet.
    """
    main, hub = greenlet.getcurrent(), importlib.import_module("eventlet.hubs").get_hub()

    def stop(_number: int, _frame: Any) -> None:
        if greenlet.getcurrent() in (main, hub.greenlet):
            raise KeyboardInterrupt
        hub.schedule_call_global(0, main.throw, KeyboardInterrupt)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
