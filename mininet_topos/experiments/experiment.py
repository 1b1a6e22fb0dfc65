"""The description of an experiment: cases x schemes on one network, and the demo."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from mininet_topos.errors import BadExperiment
from mininet_topos.experiments.schemes import Scheme, Settings, find, scheme_of, schemes
from mininet_topos.network.impairment import JITTERS, Impairment
from mininet_topos.network.layers import LAYERS, layer_of_switches
from mininet_topos.network.layout import ACCESS, ROLES, ROOT, TRUNK, Layout, bottleneck_role, lay_out
from mininet_topos.network.racks import LINKS_BY_LAYER, Incast, place, responses_by_port
from mininet_topos.network.shaping import Bottleneck
from mininet_topos.plain_values import first_twice, from_plain
from mininet_topos.workloads.flow import Flow
from mininet_topos.workloads.plan import plan
from mininet_topos.workloads.spec import with_flows_of_trace, workload

MSS_BYTES = 1448
SEGMENT_OVERHEAD_BYTES = 66
"""Ethernet 14, IPv4 20, TCP with timestamps 32: what the bottleneck counts besides the payload."""

FULL_SEGMENT_BYTES = MSS_BYTES + SEGMENT_OVERHEAD_BYTES
UDP_PAYLOAD_BYTES = 1472
"""Of a packet that is as long as a full segment: without Ethernet 14, IPv4 20, UDP 8."""

MOST_RESPONSE_BYTES = 64 << 20
LEAST_SAMPLE_MS = 10
"""How often a sink looks whether a record is due."""

TIMESTAMPS_BYTES = 12
"""Of each segment: the TCP option that all hosts use."""
LEAST_SEGMENT_BYTES = 88 - TIMESTAMPS_BYTES
"""Linux accepts no smaller MSS for a socket."""
LEAST_DEADLINE_MS, MOST_DEADLINE_MS = 0.001, 3_600_000.0
"""What the traffic programs can state, in whole microseconds (native/traffic/options.c)."""

MOST_WAIT_MS = 60_000
"""Between two queries or two samples; the traffic programs take no more (native/traffic/options.c)."""
MOST_LEAD_S = 600.0
"""Of the long flows before and after the queries. The queue of a longer run would be recorded in part."""
MOST_QUEUE_BYTES = 10_000_000
"""More packets do not fit into the buffer by which Open vSwitch sends (network/ovs_buffers.py)."""

FABRIC_MODES = ("proactive", "reactive")


def _wire_ms(size_bytes: int, rate_mbps: float) -> float:
    """Return the time of so many bytes with their headers at a rate."""
    segments = -(-size_bytes // MSS_BYTES)
    return 8 * (size_bytes + segments * SEGMENT_OVERHEAD_BYTES) / (rate_mbps * 1000)


def udp_bps(mbps: float) -> int:
    """Return the bits of UDP payload in a second that full packets at a rate of the bottleneck carry."""
    return round(mbps * 1e6 * UDP_PAYLOAD_BYTES / FULL_SEGMENT_BYTES)


@dataclass(frozen=True, slots=True)
class Case:
    """One workload: `queries` times, `workers` hosts respond with `size_bytes` each, all at once.

    ``background``: number of long flows beside the queries.
    ``fresh``: each query opens new connections.
    ``deadline_ms``: deadline of a response.
    ``segment_bytes``: the payload of a worker's full segment, if it is to be smaller than the path allows.
    ``flows``: planned flows among the root and the workers (workloads/spec.py), with or without queries.
    ``duration_s``: how long planned or long flows send if there are no queries; 0: until the last planned
    flow has ended.
    ``roots``: so many hosts ask at once, spread over ``racks`` (network/racks.py). ``workers_at``: how many
    workers of each root are behind its edge switch, one layer above it, and two above it; their sum is
    `workers`. Empty: there is one root, and the switches supply its workers in turn.
    """

    name: str
    title: str
    workers: int = 1
    size_bytes: int = 32_000
    background: int = 0
    queries: int = 0
    fresh: bool = False
    deadline_ms: float | None = None
    segment_bytes: int | None = None
    flows: dict[str, Any] | None = None
    duration_s: float = 0.0
    roots: int = 1
    racks: int = 1
    workers_at: tuple[int, ...] = ()

    def check(self) -> None:
        """Raise BadExperiment if the case makes no sense."""
        if not re.fullmatch(r"[A-Za-z0-9._]+(-[A-Za-z0-9._]+)*", self.name):
            raise BadExperiment(
                f"case {self.name!r}: its name becomes part of a file name: use letters, digits, . _ -"
            )
        where = f"case {self.name}"
        if self.workers < 1:
            raise BadExperiment(f"{where}: workers is {self.workers}; want 1 or more")
        self._check_racks(where)
        for key in ("background", "queries", "duration_s"):
            if not 0 <= getattr(self, key) < math.inf:
                raise BadExperiment(f"{where}: {key} is {getattr(self, key)}; want 0 or more")
        if not (self.queries or self.flows or (self.background and self.duration_s)):
            raise BadExperiment(
                f"{where} has no traffic: set queries, flows, or background together with duration_s"
            )
        if self.queries and not 1 <= self.size_bytes <= MOST_RESPONSE_BYTES:
            raise BadExperiment(f"{where}: size_bytes is {self.size_bytes}; want 1 to {MOST_RESPONSE_BYTES}")
        if self.segment_bytes is not None:
            self._check_segments(where, self.segment_bytes)
        if self.deadline_ms is not None and not LEAST_DEADLINE_MS <= self.deadline_ms <= MOST_DEADLINE_MS:
            raise BadExperiment(
                f"{where}: deadline_ms is {self.deadline_ms:g}; want {LEAST_DEADLINE_MS} to "
                f"{MOST_DEADLINE_MS:.0f}"
            )

    def _check_segments(self, where: str, segment_bytes: int) -> None:
        if not LEAST_SEGMENT_BYTES <= segment_bytes <= MSS_BYTES:
            raise BadExperiment(
                f"{where}: segment_bytes is {segment_bytes}; want {LEAST_SEGMENT_BYTES} to {MSS_BYTES}"
            )
        if not self.queries:
            raise BadExperiment(f"{where}: segment_bytes is that of responses, so it needs queries")

    def _check_racks(self, where: str) -> None:
        for key in ("roots", "racks"):
            if getattr(self, key) < 1:
                raise BadExperiment(f"{where}: {key} is {getattr(self, key)}; want 1 or more")
        if not self.workers_at:
            if (self.roots, self.racks) != (1, 1):
                raise BadExperiment(f"{where}: several roots or racks need workers_at, such as [12, 9, 2]")
            return
        if not all(isinstance(count, int) and count >= 0 for count in self.workers_at):
            raise BadExperiment(f"{where}: workers_at is {list(self.workers_at)}; want numbers of workers")
        if len(self.workers_at) > len(LINKS_BY_LAYER) or sum(self.workers_at) != self.workers:
            raise BadExperiment(
                f"{where}: workers_at is {list(self.workers_at)}; want at most {len(LINKS_BY_LAYER)} numbers "
                f"whose sum is workers ({self.workers})"
            )
        if self.background or self.flows or not self.queries:
            raise BadExperiment(f"{where}: workers_at needs queries, without background or flows")

    @property
    def all_queries(self) -> int:
        """The number of queries of all roots."""
        return self.roots * self.queries

    def plan(self, hosts: Sequence[str], seed: int) -> list[Flow]:
        """Return the planned flows among `hosts`. They depend on the seed alone. Raises BadExperiment."""
        return plan(workload(self.flows), hosts, seed) if self.flows else []

    def ideal_ms(self, bandwidth_mbps: float) -> float:
        """Return the ideal time: all response bytes with their headers, at the bottleneck's rate."""
        return self.workers * _wire_ms(self.size_bytes, bandwidth_mbps)


@dataclass(frozen=True, slots=True)
class Experiment:
    """All that fixes an experiment. Raises BadExperiment if it makes no sense.

    ``bandwidth_mbps``, ``queue_bytes``: rate and queue limit of the bottleneck.
    ``queues_bytes``: queue limits of the ports of other layers (network/layers.py), such as the core;
    `queue_bytes` if a layer is not named.
    ``gap_ms``: time from the end of a query to the start of the next one.
    ``period_ms``: time from start to start instead, so that every scheme carries the same load in the same
    time; a query that takes longer delays the next one.
    ``warmup_s``, ``tail_s``: how long the long flows run before the first and after the last query.
    ``congestion_control``: of the hosts, for schemes that name none.
    ``mark_pkts``: queue length above which the switch marks packets, for schemes that want marks.
    ``source_mbps``: what the application of a flow offers, for transports that send at that rate until the
    network is congested (DCUDP, UDT); with headers, as `bandwidth_mbps`. 0: `bandwidth_mbps`.
    ``sample_ms``: how often flows, and the bytes that sinks have received, are recorded.
    ``repeats``: number of runs of each case.
    ``seed``: of the planned flows and of the order in which workers are asked.
    ``repeat_until_s``: how long after its start the experiment repeats void runs.
    ``topology``: a topology with its parameters, such as `dumbbell,40,3`.
    ``rates_mbps``: rates of the other ports by role (network/layout.py); ports of other roles have no limit.
    ``fabric_mode``: the mode of fabric_app.
    ``delay_ms``, ``loss_percent``, ``jitter_ms``, ``jitter``, ``duplicate_percent``, ``reorder_percent``: the
    impairment of what every host sends (network/impairment.py).
    ``pinned``: one CPU is for the switch (machine/cpus.py). Otherwise nothing has a CPU of its own.
    ``fitted``: each case has a network of just the hosts that it needs. Otherwise all cases run on the
    network of the largest case, whose switch serves more ports.
    """

    name: str
    cases: tuple[Case, ...]
    schemes: tuple[str, ...]
    bandwidth_mbps: float
    queue_bytes: int
    gap_ms: int = 100
    period_ms: int = 0
    warmup_s: float = 2.0
    tail_s: float = 3.0
    congestion_control: str = "reno"
    mark_pkts: int = 20
    source_mbps: float = 0.0
    sample_ms: int = 100
    repeats: int = 1
    seed: int = 1
    repeat_until_s: float = 3600.0
    topology: str = "star"
    rates_mbps: dict[str, float] = field(default_factory=dict)
    queues_bytes: dict[str, int] = field(default_factory=dict)
    fabric_mode: str = "proactive"
    delay_ms: float = 0.0
    loss_percent: float = 0.0
    jitter_ms: float = 0.0
    jitter: str = JITTERS[0]
    duplicate_percent: float = 0.0
    reorder_percent: float = 0.0
    fitted: bool = False
    pinned: bool = True

    def __post_init__(self) -> None:
        self._check_schemes()
        self._check_numbers()
        if self.fabric_mode not in FABRIC_MODES:
            raise BadExperiment(f"fabric_mode is {self.fabric_mode!r}; want {' or '.join(FABRIC_MODES)}")
        if not re.fullmatch(r"[a-z0-9_]{1,15}", self.congestion_control):
            raise BadExperiment(
                f"congestion_control is {self.congestion_control!r}; want a name such as reno or cubic"
            )
        self._check_cases()
        self.impairment.check()
        self._check_rates()
        self._check_bottleneck()
        self._check_layers()
        for case in self.cases:
            self.plan(case)

    def _check_schemes(self) -> None:
        choice = f"use some of {', '.join(schemes())}"
        if not self.schemes:
            raise BadExperiment(f"schemes is empty: {choice}")
        if unknown := [name for name in self.schemes if find(name) is None]:
            raise BadExperiment(f"schemes: no scheme is called {unknown[0]!r}: {choice}")
        if len(set(self.schemes)) != len(self.schemes):
            raise BadExperiment(f"schemes names a scheme twice: {', '.join(self.schemes)}; name each once")

    def _check_numbers(self) -> None:
        least = {"gap_ms": 0, "period_ms": 0, "repeats": 1, "mark_pkts": 1}
        least |= {"sample_ms": LEAST_SAMPLE_MS, "warmup_s": 0, "tail_s": 0, "repeat_until_s": 0}
        for key, smallest in least.items():
            if not getattr(self, key) >= smallest:
                raise BadExperiment(f"{key} is {getattr(self, key)}; want {smallest} or more")
        most = dict.fromkeys(("gap_ms", "period_ms", "sample_ms"), MOST_WAIT_MS)
        for key, largest in (most | {"warmup_s": MOST_LEAD_S, "tail_s": MOST_LEAD_S}).items():
            if getattr(self, key) > largest:
                raise BadExperiment(f"{key} is {getattr(self, key)}; want at most {largest:g}")
        self._check_rates_and_limits()

    def _check_rates_and_limits(self) -> None:
        rates = {"bandwidth_mbps": self.bandwidth_mbps}
        rates |= {"source_mbps": self.source_mbps} if self.source_mbps else {}
        rates |= {f"rates_mbps.{role}": rate_mbps for role, rate_mbps in self.rates_mbps.items()}
        for key, rate_mbps in rates.items():
            if not 1 <= rate_mbps <= 10_000:
                raise BadExperiment(f"{key} is {rate_mbps}; want 1 to 10000")
        limits = {"queue_bytes": self.queue_bytes}
        limits |= {f"queues_bytes.{layer}": limit for layer, limit in self.queues_bytes.items()}
        for key, limit in limits.items():
            if limit < 2 * FULL_SEGMENT_BYTES:
                raise BadExperiment(
                    f"{key} is {limit}; want {2 * FULL_SEGMENT_BYTES} or more, two full segments"
                )
            if limit > MOST_QUEUE_BYTES:
                raise BadExperiment(
                    f"{key} is {limit}; want at most {MOST_QUEUE_BYTES}: Open vSwitch would drop packets "
                    f"before such a queue is full"
                )

    def _check_cases(self) -> None:
        if not self.cases:
            raise BadExperiment("the list of cases is empty: add a case")
        names = [case.name for case in self.cases]
        if len(set(names)) != len(names):
            raise BadExperiment(f"two cases have the same name: want a name of its own for each of {names}")
        runs = [f"{case.name}-{scheme}" for case in self.cases for scheme in self.schemes]
        if twice := first_twice(runs):
            raise BadExperiment(
                f"two runs would be called {twice!r}, from the names of case and scheme: rename a case"
            )
        for case in self.cases:
            case.check()
        if any(case.queries for case in self.cases):
            self._check_queries()

    def _check_queries(self) -> None:
        for name in self.schemes:
            scheme = find(name)
            if scheme and not scheme.is_tcp:
                raise BadExperiment(
                    f"scheme {name}: queries are sent over TCP only; give its cases `flows` instead, for "
                    f"example of the kind incast, or `background`"
                )

    def _check_rates(self) -> None:
        others = [role for role in ROLES if role != bottleneck_role(self.topology)]
        for role, rate_mbps in self.rates_mbps.items():
            if role not in others:
                raise BadExperiment(f"rates_mbps has the role {role!r}; want {' or '.join(others)}")
            if rate_mbps < self.bandwidth_mbps:
                raise BadExperiment(
                    f"rates_mbps.{role} is {rate_mbps:g}; want bandwidth_mbps ({self.bandwidth_mbps:g}) or "
                    f"more, or the bottleneck would be elsewhere"
                )

    def _check_bottleneck(self) -> None:
        layout = lay_out(self.topology, self.workers, self.senders, {})
        narrow = layout.bottleneck
        parallel = [p for p in layout.ports if (p.switch, p.towards) == (narrow.switch, narrow.towards)]
        if len(parallel) > 1:
            raise BadExperiment(
                f"topology {self.topology} has {len(parallel)} links at its bottleneck; an incast needs one"
            )

    def _check_layers(self) -> None:
        """Raise BadExperiment if the topology has no such layer, or no such places for roots and workers."""
        layers = layer_of_switches(self.layout.topo)
        narrow = layers[self.layout.bottleneck.switch]
        others = [layer for layer in LAYERS if layer in layers.values() and layer != narrow]
        if unknown := [layer for layer in self.queues_bytes if layer not in others]:
            raise BadExperiment(
                f"queues_bytes has the layer {unknown[0]!r}; {self.topology} has "
                f"{' and '.join(others) or 'none'} beside that of the bottleneck, whose limit is queue_bytes"
            )
        for case in (one for one in self.cases if one.workers_at):
            self.incasts(case)
            for name in self.schemes:
                if scheme_of(name).paced or len(scheme_of(name).transports) > 1:
                    raise BadExperiment(
                        f"case {case.name}: workers_at has several roots, but hosts of {name} are prepared "
                        f"for one: leave the scheme out"
                    )

    def plan(self, case: Case) -> list[Flow]:
        """Return the planned flows of a case, between the root and its workers. Raises BadExperiment."""
        if not case.flows:
            return []
        layout = self.layout
        return case.plan([layout.root, *layout.workers[: case.workers]], self.seed)

    def incasts(self, case: Case) -> list[Incast]:
        """Return the roots of a case with their workers, by the hosts' names. Raises BadExperiment."""
        layout = self.layout
        if not case.workers_at:
            return [Incast(layout.root, layout.workers[: case.workers])]
        chance = random.Random(f"{self.seed} {case.name}")  # noqa: S311 - places
        try:
            return place(layout.topo, case.roots, case.racks, case.workers_at, chance)
        except BadExperiment as error:
            raise BadExperiment(f"case {case.name}: {error}") from error

    def ideal_ms(self, case: Case) -> float:
        """Return the ideal time of a case's queries: that of the busiest port.

        With one root that is the bottleneck. With several roots that ask at once, it is the port with a rate
        that needs the longest for the responses of one query of every root.
        """
        if not case.workers_at:
            return case.ideal_ms(self.bandwidth_mbps)
        layout = self.layout
        return max(
            count * _wire_ms(case.size_bytes, layout.shapes[port].rate_mbps)
            for port, count in responses_by_port(layout.topo, self.incasts(case)).items()
            if port in layout.shapes
        )

    def ideal_of_flows(self) -> Callable[[Flow], float | None]:
        """Return the function that gives the ideal time of a planned flow that is alone, in ms.

        Its bytes with their headers at the least rate of the ports on its way, a round trip to connect and
        one until the end is acknowledged. None if no port on its way has a rate.
        """
        layout, round_trips_ms = self.layout, 2 * self.impairment.round_trip_ms
        rates = self.rates_mbps | {bottleneck_role(self.topology): self.bandwidth_mbps}
        switch_of = {port.towards: port.switch for port in layout.ports}

        def ideal_ms(flow: Flow) -> float | None:
            roles = {ROOT if flow.dst == layout.root else ACCESS}
            if switch_of[flow.src] != switch_of[flow.dst]:
                roles.add(TRUNK)
            rate_mbps = min((rates[role] for role in roles if role in rates), default=None)
            return rate_mbps and _wire_ms(flow.size_bytes, rate_mbps) + round_trips_ms

        return ideal_ms

    @property
    def runs(self) -> int:
        """The number of runs: of each case under each scheme in each repeat."""
        return len(self.cases) * len(self.schemes) * self.repeats

    @property
    def parts_by_network(self) -> tuple[Experiment, ...]:
        """The parts that share a network: the whole experiment or, if `fitted`, the cases of each size."""
        if not self.fitted:
            return (self,)
        sizes = dict.fromkeys((case.workers, case.background) for case in self.cases)
        return tuple(
            replace(self, cases=tuple(c for c in self.cases if (c.workers, c.background) == size))
            for size in sizes
        )

    @property
    def workers(self) -> int:
        """The number of workers beside the root that the network needs; workers with places share hosts."""
        return max(1 if case.workers_at else case.workers for case in self.cases)

    @property
    def senders(self) -> int:
        """The number of senders of long flows that the network needs."""
        return max(case.background for case in self.cases)

    @property
    def offered_mbps(self) -> float:
        """What the application of a flow offers to a transport that sends at that rate."""
        return self.source_mbps or self.bandwidth_mbps

    @property
    def bottleneck(self) -> Bottleneck:
        """Rate and queue limit of the port whose queue the lab records."""
        return self._shape(self.bandwidth_mbps)

    def _shape(self, rate_mbps: float) -> Bottleneck:
        return Bottleneck(round(rate_mbps * 1e6 / 8) * 8, queue_bytes=self.queue_bytes)

    def _with_limits(self, layout: Layout) -> Layout:
        """Return a layout whose ports have the queue limits of their layers."""
        if not self.queues_bytes:
            return layout
        layers = layer_of_switches(layout.topo)
        shapes = {
            port: replace(shape, queue_bytes=self.queues_bytes.get(layers[port.switch], self.queue_bytes))
            for port, shape in layout.shapes.items()
        }
        return replace(layout, shapes=shapes)

    @property
    def impairment(self) -> Impairment:
        """The impairment of what every host sends."""
        return Impairment(
            *(self.delay_ms, self.loss_percent, self.jitter_ms, self.jitter),
            *(self.duplicate_percent, self.reorder_percent),
        )

    @property
    def layout(self) -> Layout:
        """The network with the rate of every port. Raises BadExperiment."""
        shapes = {role: self._shape(rate_mbps) for role, rate_mbps in self.rates_mbps.items()}
        shapes[bottleneck_role(self.topology)] = self.bottleneck
        layout = lay_out(self.topology, self.workers, self.senders, shapes)
        return replace(self._with_limits(layout), impairment=self.impairment)

    @property
    def network(self) -> str:
        """The network in a few words, for reports and progress."""
        hosts, switches = len((topo := self.layout.topo).hosts()), len(topo.switches())
        behind = "one switch" if switches == 1 else f"{switches} switches"
        return f"{hosts} hosts behind {behind} ({self.topology})"

    def configured(self, scheme: Scheme) -> Scheme:
        """Return a scheme with this experiment's settings added. A mode of the fabric that it has stays."""
        marks: Settings = {}
        if scheme.marked:
            marks = {"switch": {"mark_pkts": scheme.mark_pkts or self.mark_pkts}}
            if scheme.mark_all_pkts:
                marks["switch"]["mark_all_pkts"] = scheme.mark_all_pkts
        fabric: Settings = {"fabric": {"mode": self.fabric_mode}}
        return replace(
            scheme,
            settings=fabric | scheme.settings | marks,
            window_bytes=self.sized_window_bytes if scheme.sized_window else scheme.window_bytes,
        )

    @property
    def sized_window_bytes(self) -> int:
        """The window that a receiver may advertise to each sender if all senders of the largest case send.

        All windows together fit into the queue and the link: (queue + rate x round trip) / senders, in
        whole segments, at least one.
        """
        senders = max(case.workers + case.background for case in self.cases)
        in_flight = self.queue_bytes + self.bandwidth_mbps * 1e6 / 8 * self.impairment.round_trip_ms / 1000
        return MSS_BYTES * max(1, int(in_flight / senders / FULL_SEGMENT_BYTES))

    @property
    def queue_pkts(self) -> int:
        """The queue limit in full segments."""
        return self.queue_bytes // FULL_SEGMENT_BYTES

    def to_json(self) -> dict[str, Any]:
        """Return the experiment as plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Experiment:
        """Return the experiment of plain values, of a file or of `to_json`. Raises BadExperiment."""
        lists = {}
        for key in ("cases", "schemes"):
            if key in values:
                if not isinstance(values[key], list | tuple):
                    raise BadExperiment(f"{key} is {values[key]!r}; want a list")
                lists[key] = tuple(values[key])
        if "cases" in lists:
            lists["cases"] = tuple(_case(number, case) for number, case in enumerate(lists["cases"], 1))
        return from_plain(cls, {**values, **lists}, "the experiment")


def _case(number: int, values: Mapping[str, Any]) -> Case:
    if not isinstance(values, Mapping):
        return from_plain(Case, values, f"case {number}")
    own = dict(values)
    if isinstance(values.get("workers_at"), list):
        own["workers_at"] = tuple(values["workers_at"])
    if isinstance(values.get("flows"), Mapping):
        own["flows"] = with_flows_of_trace(values["flows"])
    return from_plain(Case, own, f"case {values.get('name', number)}")


def demo(queries: int = 20) -> Experiment:
    """Return the demo: an incast, an incast beside long flows, and shares that are less than a segment."""
    return Experiment(
        name="demo",
        cases=(
            Case("A", "40 workers x 32 KB", 40, 32_000, 0, queries),
            Case("B", "20 workers x 32 KB beside 10 long flows", 20, 32_000, 10, queries),
            Case("C", "60 workers x 10 KB", 60, 10_000, 0, queries),
        ),
        schemes=("plain", "rto5", "sdtcp-auto", "sccp-auto", "sdtcp+sccp"),
        bandwidth_mbps=100,
        queue_bytes=150_000,
        repeat_until_s=150,
    )
