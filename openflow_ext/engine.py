"""The one place that tells Ryu from os-ken: apps import the framework's names from here.

    from openflow_ext.engine import app_manager, ofp_event, set_ev_cls, MAIN_DISPATCHER

The engine is ``$WEIR_ENGINE`` (``ryu`` or ``os_ken``) if set; else the one that this process has already
imported; else Ryu if it is installed; else os-ken. It is chosen, and imported, when a name is first
asked for and not before: ``ryu-manager`` must patch the standard library first.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import signal
import sys
import warnings
from typing import Any

import greenlet

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
    """No engine, or one that cannot be used; the message says what to do."""


def __getattr__(attribute: str) -> Any:
    """``name``, ``App`` (the base class of applications) and the framework's names, on first use."""
    if attribute == "name":
        value: Any = _choose()
    elif attribute == "App":
        engine = sys.modules[__name__].name
        value = getattr(load("base.app_manager", engine), _APP_CLASSES[engine])
    elif attribute in _MODULES:
        value = load(_MODULES[attribute])
    elif attribute in _HANDLER_NAMES:
        value = getattr(load("controller.handler"), attribute)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {attribute!r}")
    globals()[attribute] = value
    return value


def load(module: str, engine: str | None = None) -> Any:
    """Import ``module`` (``controller.ofp_event``, say) of ``engine``, by default the chosen one."""
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
    """Give eventlet.wsgi back the name ALREADY_HANDLED, which ryu.app.wsgi imports.

    Ryu returns it after a WebSocket session so that nothing more is written. Eventlet now notes that in
    WSGI_LOCAL.already_handled, which its WebSocketWSGI sets itself; the value returned must merely be an
    iterable of no bytes. A refused upgrade does not set it, and its status still goes out.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"\s*Eventlet is deprecated")
        wsgi: Any = importlib.import_module("eventlet.wsgi")
    if not hasattr(wsgi, "ALREADY_HANDLED"):
        wsgi.ALREADY_HANDLED = ()


def ryu_manager() -> None:
    """The ``ryu-manager`` command: Ryu's own, on a current eventlet. SIGTERM ends it as orderly as Ctrl-C.

    It listens on loopback unless ``--ofp-listen-host`` or ``--wsapi-host`` say otherwise.
    """
    wanted = os.environ.get("WEIR_ENGINE", "ryu")
    if wanted != "ryu":
        sys.exit(f"ryu-manager: runs Ryu, but WEIR_ENGINE is {wanted!r}; unset it, or use weir controller")
    manager = load("cmd.manager", "ryu")
    settings = load("cfg", "ryu").CONF
    for listener in ("ofp_listen_host", "wsapi_host"):
        settings.set_default(listener, "127.0.0.1")
    _stop_from_the_main_greenlet()
    manager.main()


def _stop_from_the_main_greenlet() -> None:
    """Let SIGTERM and Ctrl-C end Ryu whatever runs when they come.

    Python raises KeyboardInterrupt in the greenlet that is running; in one of Ryu's own it would be logged
    as an uncaught exception, and the manager would run on.
    """
    main, hub = greenlet.getcurrent(), importlib.import_module("eventlet.hubs").get_hub()

    def stop(_number: int, _frame: Any) -> None:
        if greenlet.getcurrent() in (main, hub.greenlet):
            raise KeyboardInterrupt
        hub.schedule_call_global(0, main.throw, KeyboardInterrupt)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
