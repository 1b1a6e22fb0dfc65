"""SCCP's shell: Table I and the port policy to every switch."""

from __future__ import annotations

from typing import Any

from flowdb.context import FlowDbContext
from openflow_ext import registry
from openflow_ext.engine import CONFIG_DISPATCHER, App, ofp_event, ofproto_v1_3, set_ev_cls
from openflow_ext.settings import load_or_exit
from sccp_app import entries
from sccp_app.config import SccpSettings
from telemetry_app.events import EventPortSamples
from telemetry_app.metrics import Figures

registry.install()


class SccpApp(App):
    """SCCP on every port of every switch."""

    OFP_VERSIONS = [ofproto_v1_3.OFP_VERSION]  # noqa: RUF012 (the framework's form)
    _CONTEXTS = {"flowdb": FlowDbContext}  # noqa: RUF012

    def __init__(self, *args: Any, flowdb: FlowDbContext, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.settings = load_or_exit("sccp", SccpSettings)
        flowdb.note_settings("sccp", self.settings.model_dump(mode="json"))
        self.figures = Figures("sccp", flowdb)

    def start(self) -> Any:
        if self.settings.metrics:
            self.figures.serve_or_exit(self.settings.metrics)
        return super().start()

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def on_switch(self, ev: Any) -> None:
        datapath = ev.msg.datapath
        datapath.send_msg(entries.configure_ports(datapath, self.settings.policy))
        for message in entries.table_i(datapath):
            datapath.send_msg(message)

    @set_ev_cls(EventPortSamples)
    def on_samples(self, ev: EventPortSamples) -> None:
        self.figures.ports.take(ev.dpid, ev.samples)
