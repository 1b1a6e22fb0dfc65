"""SCCP's shell: Table I and the port policy to every switch."""

from __future__ import annotations

from typing import Any

from flowdb.context import FlowDbContext
from flowdb.flow import PortKey
from openflow_ext import registry
from openflow_ext.engine import (
    CONFIG_DISPATCHER,
    DEAD_DISPATCHER,
    MAIN_DISPATCHER,
    App,
    ofp_event,
    ofproto_v1_3,
    ofproto_v1_5,
    set_ev_cls,
)
from openflow_ext.settings import load_or_exit
from sccp_app import entries
from sccp_app.config import SccpSettings
from sccp_app.metrics import ShareFigures
from sccp_app.shares import Share, Shares, why_counted_only
from telemetry_app.core import PortSample
from telemetry_app.events import EventPortSamples
from telemetry_app.metrics import Figures

registry.install()

_UP = [CONFIG_DISPATCHER, MAIN_DISPATCHER]


class SccpApp(App):
    """SCCP on every port of every switch."""

    OFP_VERSIONS = [ofproto_v1_3.OFP_VERSION, ofproto_v1_5.OFP_VERSION]  # noqa: RUF012 (the framework's form)
    _CONTEXTS = {"flowdb": FlowDbContext}  # noqa: RUF012

    def __init__(self, *args: Any, flowdb: FlowDbContext, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.settings = load_or_exit("sccp", SccpSettings)
        flowdb.note_settings("sccp", self.settings)
        self.shares = Shares(self.settings.rtt_policy)
        self.figures = Figures("sccp", flowdb)
        self._capacities_bps: dict[PortKey, int] = {}
        self.figures.registry.register(ShareFigures(self.shares, self._capacities_bps))
        self.datapaths: dict[int, Any] = {}
        self._configs: dict[int, int] = {}
        self._counted_only: dict[PortKey, str] = {}

    def start(self) -> Any:
        if self.settings.metrics:
            self.figures.serve_or_exit(self.settings.metrics)
        return super().start()

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def on_switch(self, ev: Any) -> None:
        datapath = ev.msg.datapath
        self.datapaths[datapath.id] = datapath
        config = entries.configure_ports(datapath, self.settings.policy)
        datapath.send_msg(config)
        self._configs[datapath.id] = config.xid
        for share in self.shares.of_switch(datapath.id):
            datapath.send_msg(entries.configure_port(datapath, self.settings.policy, share))
        for message in entries.table_i(datapath):
            datapath.send_msg(message)

    @set_ev_cls(ofp_event.EventOFPStateChange, DEAD_DISPATCHER)
    def on_switch_gone(self, ev: Any) -> None:
        dpid = ev.datapath.id
        if self.datapaths.get(dpid) is ev.datapath:
            del self.datapaths[dpid]

    @set_ev_cls(ofp_event.EventOFPErrorMsg, _UP)
    def on_error(self, ev: Any) -> None:
        dpid = ev.msg.datapath.id
        if self._configs.get(dpid) == ev.msg.xid:
            self.logger.warning("switch %016x refuses SCCP's settings: run weir switch on its host", dpid)

    @set_ev_cls(ofp_event.EventOFPPortStatus, MAIN_DISPATCHER)
    def on_port_status(self, ev: Any) -> None:
        if ev.msg.reason == ev.msg.datapath.ofproto.OFPPR_DELETE:
            port = PortKey(ev.msg.datapath.id, ev.msg.desc.port_no)
            self.shares.port_gone(port)
            self._counted_only.pop(port, None)
            self._capacities_bps.pop(port, None)

    @set_ev_cls(ofp_event.EventOFPFlowReport, _UP)
    def on_flow_report(self, ev: Any) -> None:
        dpid = ev.msg.datapath.id
        for record in ev.msg.records:
            if record.handshake_rtt_us:
                port = PortKey(dpid, record.out_port)
                share = self.shares.on_handshake(port, record.handshake_rtt_us, record.first_ns)
                if share and dpid in self.datapaths:
                    self._give(self.datapaths[dpid], share)

    @set_ev_cls(EventPortSamples)
    def on_samples(self, ev: EventPortSamples) -> None:
        self.figures.ports.take(ev.dpid, ev.samples)
        for sample in ev.samples:
            self._capacities_bps[sample.port] = sample.counters.capacity_bps
            self._note_flags(sample)

    def _note_flags(self, sample: PortSample) -> None:
        """Say once that a port cannot clamp, and why; and that it can again."""
        port, why = sample.port, why_counted_only(sample.counters.flags)
        if why == self._counted_only.get(port, ""):
            return
        self._counted_only[port] = why
        if why:
            text = "port %s (%s) counts flows and clamps none: %s"
            self.logger.warning(text, port, sample.name, why)
        else:
            self.logger.info("port %s (%s) clamps to its fair share again", port, sample.name)

    def _give(self, datapath: Any, share: Share) -> None:
        datapath.send_msg(entries.configure_port(datapath, self.settings.policy, share))
        if not share.fills:
            text = "port %s %s: the quickest of its last handshakes took %d us, the common RTT is less;"
            text += " raise [sccp] common_rtt_us or most_common_rtt_us"
            outcome = "cannot be filled" if share.common_rtt_us else "counts flows and clamps none"
            self.logger.warning(text, share.port, outcome, share.least_us)
            return
        needed_bytes = share.buffer_bytes(self._capacities_bps.get(share.port, 0))
        text = (
            "port %s: common RTT %d us, its handshakes' median %d us; the overshoot needs %d bytes of buffer"
        )
        self.logger.info(text, share.port, share.common_rtt_us, share.median_us, needed_bytes)
