"""SCCP's shell: Table I and the port policy to every switch, its counters to whoever listens."""

from __future__ import annotations

from typing import Any

from openflow_ext import registry
from openflow_ext.engine import (
    CONFIG_DISPATCHER,
    DEAD_DISPATCHER,
    MAIN_DISPATCHER,
    App,
    hub,
    ofp_event,
    ofproto_v1_3,
    set_ev_cls,
)
from openflow_ext.settings import load_or_exit
from sccp_app import entries
from sccp_app.config import SccpSettings
from sccp_app.events import EventPortCounters

registry.install()


class SccpApp(App):
    """SCCP on every port of every switch."""

    OFP_VERSIONS = [ofproto_v1_3.OFP_VERSION]  # noqa: RUF012 (the framework's form)
    _EVENTS = [EventPortCounters]  # noqa: RUF012

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.settings = load_or_exit("sccp", SccpSettings)
        self.datapaths: dict[int, Any] = {}

    def start(self) -> Any:
        self.threads.append(hub.spawn(self._ask_counters))
        return super().start()

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def on_switch(self, ev: Any) -> None:
        datapath = ev.msg.datapath
        datapath.send_msg(entries.configure_ports(datapath, self.settings.policy))
        for message in entries.table_i(datapath):
            datapath.send_msg(message)

    @set_ev_cls(ofp_event.EventOFPStateChange, [MAIN_DISPATCHER, DEAD_DISPATCHER])
    def on_state(self, ev: Any) -> None:
        dpid = ev.datapath.id
        if ev.state == MAIN_DISPATCHER:
            self.datapaths[dpid] = ev.datapath
        elif self.datapaths.get(dpid) is ev.datapath:
            del self.datapaths[dpid]

    @set_ev_cls(ofp_event.EventOFPPortCountersReply, MAIN_DISPATCHER)
    def on_counters(self, ev: Any) -> None:
        self.send_event_to_observers(EventPortCounters(ev.msg.datapath.id, tuple(ev.msg.body)))

    def _ask_counters(self) -> None:
        while self.is_active:
            hub.sleep(self.settings.counters_every_s)
            for datapath in list(self.datapaths.values()):
                datapath.send_msg(entries.ask_counters(datapath))
