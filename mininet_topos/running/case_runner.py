"""One run: one case under one scheme, from the first connection to the raw records on disk."""

from __future__ import annotations

import time
from collections import ChainMap
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mininet_topos.errors import RunFailed
from mininet_topos.experiments.experiment import Case, Experiment
from mininet_topos.machine.programs import wait_until
from mininet_topos.measurement.counters import packets_sent, snapshot
from mininet_topos.measurement.cpu_watch import CpuWatch
from mininet_topos.measurement.link_delay import measured_delay
from mininet_topos.measurement.queue_probe import PortQueue, QueueProbe
from mininet_topos.measurement.queue_trace import QueueTrace
from mininet_topos.measurement.stalls import read_stalls, watching_stalls
from mininet_topos.measurement.switch_backlog import watching_switch
from mininet_topos.network.lab_network import Network
from mininet_topos.network.ovs_buffers import vswitchd_pid
from mininet_topos.network.racks import ports_down
from mininet_topos.records.exposure import switch_backlog
from mininet_topos.records.raw_records import read_records
from mininet_topos.records.result_folder import write_json
from mininet_topos.records.validity import judge
from mininet_topos.running.case_traffic import START_S, CaseTraffic, OnQuery
from mininet_topos.running.metadata import version
from mininet_topos.running.pacing import pacing
from mininet_topos.running.scheme_programs import RunningScheme
from mininet_topos.running.traffic_programs import Traffic

SETTLE_S = 0.5


class CaseRunner:
    """Runs the cases of an experiment on one network."""

    def __init__(self, experiment: Experiment, net: Network, probe: QueueProbe) -> None:
        self._experiment = experiment
        self.net = net
        self._probe = probe

    def run(
        self, case: Case, scheme: RunningScheme, folder: Path, attempt: int, on_query: OnQuery
    ) -> dict[str, Any]:
        """Run a case once and write its raw records to `folder`. Returns the record of `run.json`.

        Raises RunFailed or ProgramFailed if the run does not end in time.
        """
        folder.mkdir(parents=True)
        net = self.net
        net.check_shapes()
        delay = measured_delay(net, folder)
        before, ports_before = snapshot(net), scheme.ports()
        traffic = Traffic(folder / "traffic.jsonl", net.state)
        case_traffic = CaseTraffic(self._experiment, case, net, scheme, traffic, on_query)
        layers = self._layers(case)
        with (
            CpuWatch({"ovs": vswitchd_pid()} | scheme.pids) as cpu,
            watching_stalls(folder / "stalls.jsonl", net.state) as watched,
            watching_switch(vswitchd_pid()) as backlog,
            self._probe.watching_others(ChainMap(*layers.values())),
            self._probe.watching(net.bottleneck_ifname) as trace,
            pacing(scheme, net, case, folder),
        ):
            try:
                case_traffic.go(folder)
            finally:
                traffic.stop()
            self._await_quiet()
        record = {
            "case": case.name,
            "scheme": scheme.scheme.name,
            "attempt": attempt,
            "version": version(),
            "trace_start_ns": trace.start_ns,
            "trace_is_cut": trace.is_cut,
            **self._host_settings(scheme),
            "counters": asdict(delta := snapshot(net).since(before)) | {"ovs_drops": delta.ovs_drops},
            "planned_flows": case_traffic.planned_flows,
            "ports_before": ports_before,
            "ports_after": scheme.ports(),
            "cpu": cpu.samples,
            "stalls": read_stalls(folder / "stalls.jsonl"),
            "watched_cpus": watched,
            "links": (net.links.record() | {"measured": delay}) if net.links else None,
            "pinned": self._experiment.pinned,
            "layers": self._layer_figures(layers),
            **_queue_figures(trace),
        }
        net.check_shapes()
        records = list(read_records(folder / "traffic.jsonl"))
        record["switch_backlog"] = switch_backlog(backlog, records)
        record["reasons"] = judge(record, records, case, self._experiment)
        record["valid"] = not record["reasons"]
        trace.write(folder / "queue.csv")
        write_json(folder / "run.json", record)
        return record

    def _host_settings(self, scheme: RunningScheme) -> dict[str, Any]:
        """Return the transport of each host, and the sysctls of the root and of a worker."""
        of_host = {host: scheme.transports[index] for host, index in scheme.dealt.items()}
        return {
            "transports": {host: transport.name for host, transport in of_host.items()},
            "congestion_controls": {host: one.congestion_control for host, one in of_host.items()},
            "sysctl": {host.name: host.sysctls() for host in (self.net.root, self.net.workers[0])},
        }

    def _layers(self, case: Case) -> dict[str, dict[str, PortQueue]]:
        """Return by layer the ports with a limit that lead down to the roots, if the workers have places."""
        if not case.workers_at:
            return {}
        found = ports_down(self.net.layout.topo, self._experiment.incasts(case))
        named = {layer: [self.net.ifname(port) for port in ports] for layer, ports in found.items()}
        return {
            layer: {name: PortQueue() for name in names if name in self.net.shapes}
            for layer, names in named.items()
        }

    def _layer_figures(self, layers: dict[str, dict[str, PortQueue]]) -> dict[str, list[dict[str, Any]]]:
        """Return the queues of each layer's ports as plain values, with their limits."""
        return {
            layer: [
                {"port": name, "limit_bytes": self.net.shapes[name].queue_bytes} | asdict(queue)
                for name, queue in ports.items()
            ]
            for layer, ports in layers.items()
        }

    def _await_quiet(self) -> None:
        """Wait until no host sends any more, so that sent and received segments can be compared."""
        last_sent = packets_sent(self.net)
        settled_s = SETTLE_S + self._experiment.delay_ms / 1000
        since = time.monotonic()

        def quiet() -> bool:
            nonlocal last_sent, since
            sent = packets_sent(self.net)
            if sent != last_sent:
                last_sent, since = sent, time.monotonic()
            return time.monotonic() - since > settled_s

        if not wait_until(quiet, START_S):
            raise RunFailed("the hosts still send although the traffic programs have ended")


def _queue_figures(trace: QueueTrace) -> dict[str, Any]:
    return {
        "queue_max_pkts": int(trace.pkts.max(initial=0)),
        "queue_max_bytes": int(trace.bytes.max(initial=0)),
        "busy_rate_bps": trace.busy_rate_bps(),
    }
