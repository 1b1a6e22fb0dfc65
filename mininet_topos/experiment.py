"""What an experiment is: cases x schemes over one network, and the demo's three cases."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from mininet_topos.errors import BadExperiment
from mininet_topos.layout import ROLES, Layout, bottleneck_role, lay_out
from mininet_topos.links import Bottleneck
from mininet_topos.netem import Impairment
from mininet_topos.schemes import SCHEMES, Scheme, Settings
from mininet_topos.workloads.flow import Flow
from mininet_topos.workloads.plan import plan
from mininet_topos.workloads.spec import workload

MSS_BYTES = 1448
SEGMENT_OVERHEAD_BYTES = 66
"""Ethernet 14, IPv4 20, TCP with timestamps 32: what the bottleneck counts beside the payload."""

FULL_SEGMENT_BYTES = MSS_BYTES + SEGMENT_OVERHEAD_BYTES
MOST_RESPONSE_BYTES = 64 << 20
FABRIC_MODES = ("proactive", "reactive")


@dataclass(frozen=True, slots=True)
class Case:
    """One workload: `queries` times, `workers` hosts answer with `size_bytes` each, all at once.

    ``background``: long flows beside it. ``fresh``: every query opens connections anew. ``deadline_ms``: how
    long an answer may take. ``flows``: planned flows among root and workers (workloads/spec.py), beside the
    queries or alone; then, or with long flows alone, ``duration_s`` says for how long (0: until the last has
    ended).
    """

    name: str
    title: str
    workers: int = 1
    size_bytes: int = 32_000
    background: int = 0
    queries: int = 0
    fresh: bool = False
    deadline_ms: float | None = None
    flows: dict[str, Any] | None = None
    duration_s: float = 0.0

    def check(self, seed: int) -> None:
        """Raises BadExperiment where a case makes no sense."""
        if not re.fullmatch(r"[A-Za-z0-9._]+(-[A-Za-z0-9._]+)*", self.name):
            raise BadExperiment(
                f"a case's name, {self.name!r}, is part of a file's: letters, digits, . _ - alone"
            )
        if self.workers < 1 or self.background < 0:
            raise BadExperiment("a case needs a worker, and no negative number of long flows")
        if self.queries < 0 or self.duration_s < 0:
            raise BadExperiment(f"case {self.name}: want no negative number of queries or seconds")
        if not (self.queries or self.flows or (self.background and self.duration_s)):
            raise BadExperiment(f"case {self.name}: at least one query, flows or timed long flows are needed")
        if self.queries and not 1 <= self.size_bytes <= MOST_RESPONSE_BYTES:
            raise BadExperiment(f"a response of {self.size_bytes} bytes: want 1 to {MOST_RESPONSE_BYTES}")
        self.plan([f"h{number}" for number in range(1 + self.workers)], seed)

    def plan(self, hosts: Sequence[str], seed: int) -> list[Flow]:
        """The planned flows among `hosts`: the same for the same seed. Raises BadExperiment."""
        return plan(workload(self.flows), hosts, seed) if self.flows else []

    def ideal_ms(self, bandwidth_mbps: float) -> float:
        """All response bytes with their headers, at the bottleneck's rate."""
        segments = -(-self.size_bytes // MSS_BYTES)
        wire_bytes = self.workers * (self.size_bytes + segments * SEGMENT_OVERHEAD_BYTES)
        return 8 * wire_bytes / (bandwidth_mbps * 1000)


@dataclass(frozen=True, slots=True)
class Experiment:
    """All that fixes an experiment. Raises BadExperiment where it makes no sense.

    ``gap_ms``: from the end of a query to the next one's begin. ``period_ms``: from begin to begin instead,
    so that all schemes are asked for the same in the same time; a query that takes longer delays the next.
    ``warmup_s``: how long the long flows run before the first query; ``tail_s``: and after the last.
    ``congestion_control``: of hosts where the scheme names none. ``mark_pkts``: the queue beyond which the
    switch marks, where the scheme wants marks. ``repeats``: how often each case is run. ``repeat_until_s``:
    void runs are repeated until the experiment has taken so long.
    ``topology``: a spec such as `dumbbell,40,3`. ``rates_mbps``: of ports beside the bottleneck, by their
    role (layout.py); a role that is not named is as fast as the machine. ``fabric_mode``: fabric_app's.
    ``delay_ms``, ``loss_percent``: of what each host sends (netem.py). ``fitted``: each case has a network of
    just as many hosts as it needs; else all have that of the largest, whose switch has more ports to look at.
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
    repeats: int = 1
    seed: int = 1
    repeat_until_s: float = 3600.0
    topology: str = "star"
    rates_mbps: dict[str, float] = field(default_factory=dict)
    fabric_mode: str = "proactive"
    delay_ms: float = 0.0
    loss_percent: float = 0.0
    fitted: bool = False

    def __post_init__(self) -> None:
        unknown = [name for name in self.schemes if name not in SCHEMES]
        if unknown or not self.schemes or len(set(self.schemes)) != len(self.schemes):
            given = ", ".join(self.schemes) or "none"
            raise BadExperiment(f"schemes are some of {', '.join(SCHEMES)}, each once: not {given}")
        names = [case.name for case in self.cases]
        if len(set(names)) != len(names):
            raise BadExperiment(f"every case needs a name of its own: not {', '.join(names)}")
        if not self.cases:
            raise BadExperiment("an experiment needs a case")
        for rate_mbps in (self.bandwidth_mbps, *self.rates_mbps.values()):
            if not 1 <= rate_mbps <= 10_000:
                raise BadExperiment(f"a bandwidth of {rate_mbps} Mbit/s: want 1 to 10000")
        if self.fabric_mode not in FABRIC_MODES:
            raise BadExperiment(f"no fabric mode is called {self.fabric_mode!r}: {' or '.join(FABRIC_MODES)}")
        if self.queue_bytes < 2 * FULL_SEGMENT_BYTES:
            raise BadExperiment(f"a queue of {self.queue_bytes} bytes holds no two full segments")
        if self.gap_ms < 0 or self.period_ms < 0:
            raise BadExperiment(f"a gap of {self.gap_ms} ms, a period of {self.period_ms}: want 0 or more")
        if self.repeats < 1:
            raise BadExperiment(f"{self.repeats} repeats: want 1 or more")
        if self.mark_pkts < 1:
            raise BadExperiment(f"marks beyond a queue of {self.mark_pkts} packets: want 1 or more")
        if not re.fullmatch(r"[a-z0-9_]{1,15}", self.congestion_control):
            raise BadExperiment(f"not a congestion control: {self.congestion_control}")
        self.impairment.check()
        for case in self.cases:
            case.check(self.seed)
        self._require_rates()
        full = (layout := lay_out(self.topology, self.workers, self.senders, {})).bottleneck
        if sum((port.switch, port.towards) == (full.switch, full.towards) for port in layout.ports) > 1:
            raise BadExperiment(f"{self.topology} has several links where it is narrow: an incast wants one")

    def _require_rates(self) -> None:
        others = [role for role in ROLES if role != bottleneck_role(self.topology)]
        for role, rate_mbps in self.rates_mbps.items():
            if role not in others:
                raise BadExperiment(f"a rate for {role!r}: want one for {' or '.join(others)}")
            if rate_mbps < self.bandwidth_mbps:
                raise BadExperiment(f"{role} ports of {rate_mbps:g} Mbit/s are narrower than the bottleneck")

    @property
    def parts(self) -> tuple[Experiment, ...]:
        """What is run on one network each: all cases, or, where they are fitted, those of one size."""
        if not self.fitted:
            return (self,)
        sizes = dict.fromkeys((case.workers, case.background) for case in self.cases)
        return tuple(
            replace(self, cases=tuple(c for c in self.cases if (c.workers, c.background) == size))
            for size in sizes
        )

    @property
    def workers(self) -> int:
        """How many workers the network needs."""
        return max(case.workers for case in self.cases)

    @property
    def senders(self) -> int:
        """How many senders of long flows the network needs."""
        return max(case.background for case in self.cases)

    @property
    def bottleneck(self) -> Bottleneck:
        """The shaping of the port whose queue is watched."""
        return self._width(self.bandwidth_mbps)

    def _width(self, rate_mbps: float) -> Bottleneck:
        return Bottleneck(round(rate_mbps * 1e6 / 8) * 8, queue_bytes=self.queue_bytes)

    @property
    def impairment(self) -> Impairment:
        """Delay and loss of every host's link."""
        return Impairment(self.delay_ms, self.loss_percent)

    @property
    def layout(self) -> Layout:
        """The network, with every port's width. Raises BadExperiment."""
        widths = {role: self._width(rate_mbps) for role, rate_mbps in self.rates_mbps.items()}
        widths[bottleneck_role(self.topology)] = self.bottleneck
        layout = lay_out(self.topology, self.workers, self.senders, widths)
        return replace(layout, impairment=self.impairment)

    @property
    def network(self) -> str:
        """The network, in a few words."""
        hosts, switches = len((topo := self.layout.topo).hosts()), len(topo.switches())
        behind = "one switch" if switches == 1 else f"{switches} switches"
        return f"{hosts} hosts behind {behind} ({self.topology})"

    def settled(self, scheme: Scheme) -> Scheme:
        """A scheme with what the experiment says of it."""
        marks: Settings = {"switch": {"mark_pkts": self.mark_pkts}} if scheme.marked else {}
        return replace(scheme, settings=scheme.settings | {"fabric": {"mode": self.fabric_mode}} | marks)

    @property
    def queue_pkts(self) -> int:
        """The queue in full segments."""
        return self.queue_bytes // FULL_SEGMENT_BYTES

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Experiment:
        """The reverse of to_json. Raises BadExperiment."""
        try:
            cases = tuple(Case(**case) for case in values["cases"])
            return cls(**{**values, "cases": cases, "schemes": tuple(values["schemes"])})
        except (KeyError, TypeError) as error:
            raise BadExperiment(f"not an experiment: {error}") from error


def demo(queries: int = 20) -> Experiment:
    """The main job: incast alone, beside long flows, and where a window is smaller than a segment."""
    return Experiment(
        name="demo",
        cases=(
            Case("A", "40 workers x 32 KB", 40, 32_000, 0, queries),
            Case("B", "20 workers x 32 KB beside 10 long flows", 20, 32_000, 10, queries),
            Case("C", "60 workers x 10 KB", 60, 10_000, 0, queries),
        ),
        schemes=("plain", "sdtcp", "sccp"),
        bandwidth_mbps=100,
        queue_bytes=150_000,
        repeat_until_s=150,
    )
