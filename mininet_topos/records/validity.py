"""Validity: the reasons that make a run void, which are the same for all schemes.

A run is void if the machine, and not the network, may have caused its figures. The CPU time that a scheme's
own programs take, and the packets that Open vSwitch loses on the way to a queue, are part of the scheme.
"""

from __future__ import annotations

from typing import Any

from mininet_topos.experiments.experiment import FULL_SEGMENT_BYTES, Case, Experiment
from mininet_topos.network.impairment import bound_us
from mininet_topos.records.exposure import exposure, samples_within
from mininet_topos.records.raw_records import queries

LEAST_IDLE = 0.03
"""Of the hosts' CPUs, in each second. The time of the scheme's own programs counts as idle."""
MOST_STOLEN = 0.05
"""Of all CPUs, over the run."""
MOST_STALLED = 0.10
"""Of the run's time, for the CPU with the longest stalls."""
RATE_TOLERANCE = 0.02
OWN_PROGRAMS = ("controller", "agent")
MOST_LATE_OF_DELAY = 0.05
"""How much later than its delay a packet may leave the delay line, at the 99th percentile of a run."""


def judge(
    record: dict[str, Any], records: list[dict[str, Any]], case: Case, experiment: Experiment
) -> list[str]:
    """Return the reasons that make a run void; an empty list if the run is valid.

    `record` is the run's own record (run.json); `records` are the records of its traffic programs.
    """
    checks = (
        _queries_complete(records, case),
        _flows_complete(record, records, case),
        _cpu(record, records),
        _hypervisor(record, records),
        _rate(record, experiment),
        _trace(record),
        _ovs_receive_drops(record),
        _link_losses(record, experiment),
        _link_delay(record),
        _delay_line(record, experiment),
        _queue_limit(record, experiment),
    )
    return [reason for reason in checks if reason]


def _queries_complete(records: list[dict[str, Any]], case: Case) -> str:
    done = len(queries(records))
    return "" if done == case.all_queries else f"{done} of {case.all_queries} queries were completed"


def _flows_complete(record: dict[str, Any], records: list[dict[str, Any]], case: Case) -> str:
    done = sum(entry["event"] == "flow" for entry in records)
    planned = record.get("planned_flows", 0)
    return "" if case.duration_s or done == planned else f"{done} of {planned} planned flows were completed"


def _cpu(record: dict[str, Any], records: list[dict[str, Any]]) -> str:
    """The hosts' CPUs must have had idle time, if the scheme's own programs are left out."""
    cpus = max(1, len(record["watched_cpus"]) - record["pinned"])
    left = [
        sample["idle"] + sum(sample.get(name, 0.0) for name in OWN_PROGRAMS) / cpus
        for sample in samples_within(record, records)
    ]
    idle = min(left, default=1.0)
    return (
        ""
        if idle >= LEAST_IDLE
        else (
            f"the machine was starved of CPU: {idle:.0%} idle, or used by the scheme, in the busiest second"
        )
    )


def _hypervisor(record: dict[str, Any], records: list[dict[str, Any]]) -> str:
    shares = exposure(record, records)
    if (stolen := shares["stolen"] or 0.0) > MOST_STOLEN:
        return f"the machine was starved of CPU: the hypervisor took {stolen:.0%} of the CPUs' time"
    if (stalled := shares["one_stalled"] or 0.0) > MOST_STALLED:
        return f"a CPU stood still for {stalled:.0%} of the time"
    return ""


def _rate(record: dict[str, Any], experiment: Experiment) -> str:
    rate = record["busy_rate_bps"]
    if rate is None:
        return ""
    wanted = experiment.bandwidth_mbps * 1e6
    if abs(rate - wanted) <= RATE_TOLERANCE * wanted:
        return ""
    return f"the busy bottleneck sent {rate / 1e6:.1f} Mbit/s, not {experiment.bandwidth_mbps:g}"


def _trace(record: dict[str, Any]) -> str:
    return (
        "it took longer than the queue can be recorded: split the case" if record.get("trace_is_cut") else ""
    )


def _ovs_receive_drops(record: dict[str, Any]) -> str:
    """Open vSwitch must receive every packet.

    The packets that it loses afterwards count as the scheme's (`ovs_drops`). If the queue refuses a packet,
    Open vSwitch drops the rest of the batch, and such a loss looks like any other one. A rule about them
    would therefore apply only to schemes whose queue never overflows.
    """
    lost = record["counters"]["ovs_receive_drops"]
    return f"ovs-vswitchd was too slow to receive {lost} packets" if lost else ""


def _link_losses(record: dict[str, Any], experiment: Experiment) -> str:
    """A link with a delay only must not lose packets; a loss would mean that a limit is too low."""
    lost = record["counters"].get("link_losses", 0)
    if lost and not experiment.loss_percent:
        return f"links that only delay lost {lost} packets"
    return ""


def _link_delay(record: dict[str, Any]) -> str:
    """The delay that was measured at the start of the run must be the stated one."""
    measured = (record.get("links") or {}).get("measured") or {}
    return f"the measured delay is wrong: {measured['wrong']}" if measured.get("wrong") else ""


def _delay_line(record: dict[str, Any], experiment: Experiment) -> str:
    """The delay line must lose no packet except on purpose, and must not be late."""
    links = record.get("links") or {}
    if lost := links.get("not_on_purpose"):
        return f"the delay line lost packets: {', '.join(f'{n} {name}' for name, n in lost.items())}"
    late_us = links.get("lateness_us", {}).get("p99", 0.0)
    delay_us = 1000 * experiment.delay_ms
    most_us = max(bound_us(delay_us), MOST_LATE_OF_DELAY * delay_us)
    if delay_us and late_us > most_us:
        return (
            f"the delay line was late by {late_us:.0f} us at the 99th percentile; {most_us:.0f} are allowed"
        )
    return ""


def _queue_limit(record: dict[str, Any], experiment: Experiment) -> str:
    """A queue may drop packets only if it is full, and must not be longer than its limit."""
    longest, limit = record["queue_max_bytes"], experiment.queue_bytes
    if longest > limit:
        return f"the queue held {longest} bytes, more than its limit of {limit}"
    if record["counters"]["queue_drops"] and longest < limit - FULL_SEGMENT_BYTES:
        return f"the queue dropped at {longest} bytes, not at its limit of {limit}"
    return ""
