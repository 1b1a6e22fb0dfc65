"""A Ryu app that asks for reports of opened flows and only counts them, for ``bench.flow_reports``."""

from __future__ import annotations

import os
from typing import Any

from bench.tally import Tally
from openflow_ext import registry
from openflow_ext.engine import CONFIG_DISPATCHER, MAIN_DISPATCHER, App, ofp_event, ofproto_v1_3, set_ev_cls
from openflow_ext.wire import FlowKinds

registry.install()


class CountingApp(App):
    OFP_VERSIONS = [ofproto_v1_3.OFP_VERSION]  # noqa: RUF012 (the framework's form)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.tally = Tally()

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def on_switch(self, ev: Any) -> None:
        datapath = ev.msg.datapath
        interval_ms = int(os.environ["WEIR_BENCH_INTERVAL_MS"])
        datapath.send_msg(
            datapath.ofproto_parser.OFPFlowReportConfig(datapath, FlowKinds.OPENED, interval_ms)
        )
        datapath.send_barrier()

    @set_ev_cls(ofp_event.EventOFPBarrierReply, [CONFIG_DISPATCHER, MAIN_DISPATCHER])
    def on_barrier(self, _ev: Any) -> None:
        self.tally.begin()

    @set_ev_cls(ofp_event.EventOFPFlowReport, MAIN_DISPATCHER)
    def on_report(self, ev: Any) -> None:
        self.tally.add(len(ev.msg.records), ev.msg.lost)
