"""SCCP's shell: sends Table I and the port policy to switches, and measured common RTTs to ports."""

from __future__ import annotations

import time
from typing import Any

from app_base.app import CONNECTED, ControllerApp, Refusal
from app_base.messages import ask_entries, delete_exactly
from flowdb.context import FlowDbContext
from flowdb.flow import PortKey
from openflow_ext.engine import MAIN_DISPATCHER, ofp_event, set_ev_cls
from openflow_ext.wire import OFPET_EXPERIMENTER, ErrorCode
from sccp_app import messages
from sccp_app.common_rtt import CommonRtts, PortRtt, why_not_clamping
from sccp_app.config import SccpSettings
from sccp_app.metrics import CommonRttMetrics
from sccp_app.own_settings import OwnSettings
from sccp_app.stage import STAGE
from telemetry_app.core import PortSample
from telemetry_app.events import EventPortSamples
from telemetry_app.metrics import PortCollector
from weir_base.log_limit import LogLimit

_CANNOT_CARRY = (ErrorCode.BAD_PORT, ErrorCode.NO_DATAPLANE)
"""The errors of an agent whose port does not carry its programs, which may change."""
_LOG_EVERY_S = 10.0
"""A port's change to one reason is logged this often at most."""


class SccpApp(ControllerApp[SccpSettings]):
    """SCCP on every port of every switch."""

    DECLARATION = STAGE

    def __init__(self, *args: Any, flowdb: FlowDbContext, **kwargs: Any) -> None:
        super().__init__(*args, flowdb=flowdb, **kwargs)
        self.common_rtts = CommonRtts(self.settings.rtt_policy)
        self.port_figures = PortCollector()
        self.metrics.registry.register(self.port_figures)
        self._capacities_bps: dict[PortKey, int] = {}
        self.metrics.registry.register(CommonRttMetrics(self.common_rtts, self._capacities_bps))
        self._config_xids: dict[int, int] = {}
        self._not_clamping: dict[PortKey, str] = {}
        self._clamping_lines = LogLimit(_LOG_EVERY_S)
        self._sampled: dict[int, set[PortKey]] = {}
        self._own_settings = OwnSettings()

    def switch_connected(self, datapath: Any) -> None:
        self.common_rtts.switch_up(datapath.id)
        self._own_settings.switch_gone(datapath.id)
        scope = self.settings.scope
        config = messages.configure_ports(datapath, self.settings.policy, scope)
        datapath.send_msg(config)
        self._config_xids[datapath.id] = config.xid
        with_own = {rtt.port for rtt in self.common_rtts.of_switch(datapath.id)}
        for port in with_own | {port for port in scope.ports if port.dpid == datapath.id}:
            self._configure_port(datapath, port)
        for message in messages.entries(
            datapath, self.settings.rows, self.pipeline.next_table(STAGE.table), scope
        ):
            datapath.send_msg(message)
        datapath.send_msg(ask_entries(datapath, STAGE.cookie))

    def switch_disconnected(self, dpid: int) -> None:
        self.common_rtts.switch_gone(dpid)
        self._own_settings.switch_gone(dpid)
        self._config_xids.pop(dpid, None)

    def message_refused(self, refusal: Refusal) -> None:
        if refusal.type == OFPET_EXPERIMENTER and refusal.code in _CANNOT_CARRY:
            self._own_settings.refused(refusal.dpid, refusal.xid)
        if self._config_xids.get(refusal.dpid) == refusal.xid:
            text = "switch %016x refuses SCCP's settings: run weir switch on its host"
            self.logger.warning(text, refusal.dpid)

    @set_ev_cls(ofp_event.EventOFPPortStatus, MAIN_DISPATCHER)
    def on_port_status(self, ev: Any) -> None:
        port = PortKey(ev.msg.datapath.id, ev.msg.desc.port_no)
        if ev.msg.reason != ev.msg.datapath.ofproto.OFPPR_DELETE:
            if ev.msg.reason == ev.msg.datapath.ofproto.OFPPR_ADD and port in self.settings.scope.ports:
                self._configure_port(ev.msg.datapath, port)
        else:
            self.common_rtts.port_gone(port)
            self._own_settings.port_gone(port)
            self._forget_samples(port)

    @set_ev_cls([ofp_event.EventOFPFlowStatsReply, ofp_event.EventOFPFlowDescStatsReply], CONNECTED)
    def on_entries(self, ev: Any) -> None:
        """Delete the entries of an earlier scope. The entries of this scope are in force."""
        for cookie in messages.outdated(ev.msg.body, self.settings.scope):
            ev.msg.datapath.send_msg(delete_exactly(ev.msg.datapath, cookie, STAGE.table))

    @set_ev_cls(ofp_event.EventOFPFlowReport, CONNECTED)
    def on_flow_report(self, ev: Any) -> None:
        dpid = ev.msg.datapath.id
        if self.settings.policy.corrects_allowance or dpid not in self.datapaths:
            return
        for record in ev.msg.records:
            if record.handshake_rtt_us:
                port = PortKey(dpid, record.out_port)
                rtt = self.common_rtts.on_handshake(port, record.handshake_rtt_us, record.first_ns)
                if rtt:
                    self._send_rtt(self.datapaths[dpid], rtt)

    @set_ev_cls(EventPortSamples)
    def on_samples(self, ev: EventPortSamples) -> None:
        self.port_figures.take(ev.dpid, ev.samples)
        ports = {sample.port for sample in ev.samples}
        for port in self._sampled.pop(ev.dpid, set()) - ports:
            self._forget_samples(port)
        if ports:
            self._sampled[ev.dpid] = ports
        for sample in ev.samples:
            self._capacities_bps[sample.port] = sample.counters.capacity_bps
            self._log_clamping(sample)
            if self._own_settings.take_refused(sample.port) and ev.dpid in self.datapaths:
                self._configure_port(self.datapaths[ev.dpid], sample.port)

    def _forget_samples(self, port: PortKey) -> None:
        self._not_clamping.pop(port, None)
        self._capacities_bps.pop(port, None)

    def _log_clamping(self, sample: PortSample) -> None:
        """Log once that a port cannot clamp, with the reason, and once that it clamps again.

        A change that is held back is logged with a later sample, unless the port has changed back by then.
        """
        port, why = sample.port, why_not_clamping(sample.counters.flags)
        if why == self._not_clamping.get(port, ""):
            return
        if self._clamping_lines.passes((port, why), time.monotonic()) is None:
            return
        self._not_clamping[port] = why
        if why:
            self.logger.warning("port %s (%s) counts flows but does not clamp: %s", port, sample.name, why)
        else:
            self.logger.info("port %s (%s) clamps to its fair share again", port, sample.name)

    def _configure_port(self, datapath: Any, port: PortKey) -> None:
        """Send a port its own settings."""
        settings, rtt = self.settings, self.common_rtts.of_port(port)
        common_rtt_us = settings.common_rtt_us if rtt is None else rtt.common_rtt_us
        config = messages.configure_port(datapath, settings.policy, settings.scope, port, common_rtt_us)
        datapath.send_msg(config)
        self._own_settings.sent(port, config.xid)

    def _send_rtt(self, datapath: Any, rtt: PortRtt) -> None:
        self._configure_port(datapath, rtt.port)
        if not rtt.fills_port:
            text = "port %s %s: its shortest recent handshake took %d us, longer than the common RTT;"
            text += " raise [sccp] common_rtt_us or most_common_rtt_us"
            effect = "cannot be filled" if rtt.common_rtt_us else "counts flows but does not clamp"
            self.logger.warning(text, rtt.port, effect, rtt.least_us)
            return
        text = "port %s: common RTT %d us, median handshake %d us; the overshoot needs a buffer of %d bytes"
        buffer_bytes = rtt.overshoot_bytes(self._capacities_bps.get(rtt.port, 0))
        self.logger.info(text, rtt.port, rtt.common_rtt_us, rtt.median_us, buffer_bytes)
