"""The base class of Weir's controller apps: what every Ryu or os-ken app here needs in the same way."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from app_base.metrics import AppMetrics
from app_base.pipeline import Pipeline
from app_base.stage import Declaration, Stage, StageError, installed_stages
from flowdb.context import FlowDbContext
from flowdb.db import FlowDb
from openflow_ext import registry
from openflow_ext.engine import (
    CONFIG_DISPATCHER,
    DEAD_DISPATCHER,
    HANDSHAKE_DISPATCHER,
    MAIN_DISPATCHER,
    App,
    EventBase,
    app_manager,
    hub,
    ofp_event,
    ofproto_v1_3,
    ofproto_v1_5,
    set_ev_cls,
)
from weir_base.log_limit import LogLimit, more_held_back
from weir_base.settings import Section, load_or_exit

registry.install()

SettingsT = TypeVar("SettingsT", bound=Section)

CONNECTED = [CONFIG_DISPATCHER, MAIN_DISPATCHER]
"""The states of a session in which the switch is known by its datapath id."""

_EXPERIMENTER_ERROR = 0xFFFF
_TICK_MARGIN_S = 0.001
"""A tick may be this late."""
_LOOK_S = 1.0
"""How often the thread of ticks looks whether a tick that it has sent was handled."""


_WARN_EVERY_S = 1.0
"""The time between two warnings about messages of a switch."""


class EventTick(EventBase):
    """Time to work. It is an event, so that ticks and messages are handled one after the other."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A switch's error message about the message ``xid``. ``code``: an experimenter's exp_type."""

    dpid: int
    xid: int
    type: int
    code: int

    def __str__(self) -> str:
        return f"type {self.type} code {self.code}"


class ControllerApp(App, Generic[SettingsT]):
    """An app with hooks for switches that connect, disconnect or refuse a message, and for time that passes.

    A subclass names its Declaration or Stage and overrides the hooks at the end. If the settings cannot be
    used, or the stage collides with another, the process ends with one line that says why.
    """

    OFP_VERSIONS: ClassVar[list[int]] = [ofproto_v1_3.OFP_VERSION, ofproto_v1_5.OFP_VERSION]
    _CONTEXTS: ClassVar[dict[str, type]] = {"flowdb": FlowDbContext}
    DECLARATION: ClassVar[Declaration]

    def __init__(self, *args: Any, flowdb: FlowDb, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.stages = _installed_or_exit(self.DECLARATION)
        self.running_tables = running_tables(self.DECLARATION)
        self.pipeline = Pipeline.of(self.running_tables)
        self.settings: SettingsT = load_or_exit(self.DECLARATION.name, _model(self.DECLARATION))
        self.flowdb = flowdb
        flowdb.note_settings(self.DECLARATION.name, self.settings)
        self.metrics = AppMetrics(self.DECLARATION, flowdb)
        self.datapaths: dict[int, Any] = {}
        self._warnings = LogLimit(_WARN_EVERY_S)
        self._tick_waits = False
        self._tick_due_s = 0.0
        self._due_changed = hub.Queue()  # os-ken's Event does not wake up after a timeout

    def start(self) -> Any:
        """The framework calls this when all apps have been made."""
        if address := getattr(self.settings, "metrics", None):
            self.metrics.serve_or_exit(address)
        if interval_s := self.tick_interval_s():
            self._tick_due_s = time.monotonic() + interval_s
            self.threads.append(hub.spawn(self._send_ticks))
        return super().start()

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def on_switch(self, ev: Any) -> None:
        datapath = ev.msg.datapath
        datapath.id = ev.msg.datapath_id  # os-ken sets it in another thread, which may be later
        self.datapaths[datapath.id] = datapath
        self.switch_connected(datapath)

    @set_ev_cls(ofp_event.EventOFPStateChange, DEAD_DISPATCHER)
    def on_switch_gone(self, ev: Any) -> None:
        dpid = ev.datapath.id
        if self.datapaths.get(dpid) is ev.datapath:  # otherwise the switch has a newer session
            del self.datapaths[dpid]
            self.switch_disconnected(dpid)

    @set_ev_cls(ofp_event.EventOFPErrorMsg, [HANDSHAKE_DISPATCHER, *CONNECTED])
    def on_error(self, ev: Any) -> None:
        msg = ev.msg
        code = msg.exp_type if msg.type == _EXPERIMENTER_ERROR else msg.code
        self.message_refused(Refusal(msg.datapath.id or 0, msg.xid, msg.type, code))

    @set_ev_cls(EventTick)
    def on_tick(self, _ev: EventTick | None) -> None:
        self._tick_waits = False
        try:
            self.tick()
        finally:
            self._tick_due_s = time.monotonic() + self.tick_interval_s()
            self._due_changed.put(None)

    def _send_ticks(self) -> None:
        """Send ticks. This thread may not read the state of the app, on which its interval depends."""
        while self.is_active:
            try:
                self._due_changed.get(timeout=max(0.0, self._tick_due_s - time.monotonic()))
            except hub.QueueEmpty:
                if time.monotonic() < self._tick_due_s:
                    continue
                self._tick_due_s = time.monotonic() + _LOOK_S
                if not self._tick_waits:
                    self._tick_waits = True
                    self.send_event(self.name, EventTick())

    def tick_interval_s(self) -> float:
        """Seconds until the next tick. If the first answer is 0, the app gets no ticks."""
        return 0.0

    def check_interval(self) -> None:
        """Call this if ``tick_interval_s`` may have become shorter, so that the next tick comes in time."""
        now_s, interval_s = time.monotonic(), self.tick_interval_s()
        if now_s + interval_s < self._tick_due_s - _TICK_MARGIN_S:
            self._tick_due_s = now_s + interval_s
            self._due_changed.put(None)

    def warn_of_switch(self, dpid: int, text: str) -> None:
        """Log ``text`` about a message of a switch. The switch may send any number of such messages."""
        held_back = self._warnings.passes(dpid, time.monotonic())
        if held_back is not None:
            self.logger.warning("%s%s", text, more_held_back(held_back))

    def switch_connected(self, datapath: Any) -> None:
        """A session with a switch began; ``datapaths`` has it."""

    def switch_disconnected(self, dpid: int) -> None:
        """The newest session with a switch ended; ``datapaths`` no longer has it."""

    def message_refused(self, refusal: Refusal) -> None:
        """A switch answered a message with an error."""

    def tick(self) -> None:
        """The interval has passed, and all earlier events of this app have been handled."""


def running_tables(*declarations: Declaration) -> set[int]:
    """The tables of the stages that this process runs, and of those among ``declarations``."""
    apps = app_manager.AppManager.get_instance().applications_cls.values()
    declared = (*declarations, *(getattr(app, "DECLARATION", None) for app in apps))
    return {stage.table for stage in declared if isinstance(stage, Stage)}


def _model(declaration: Declaration) -> type[Any]:
    return declaration.settings


def _installed_or_exit(declaration: Declaration) -> tuple[Stage, ...]:
    try:
        stages = installed_stages()
    except StageError as error:
        raise SystemExit(f"weir: {error}") from error
    if isinstance(declaration, Stage) and declaration not in stages:
        text = f"stage {declaration.name} ({declaration.app}) is not installed"
        raise SystemExit(f"weir: {text}; name it in an entry point of weir.stages and install its package")
    return stages
