"""The values that pages show and that the API returns, with their units in their names.

Times are Unix times in nanoseconds. A switch is named by its datapath id, 16 hexadecimal digits.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict


class View(BaseModel):
    """Base of all views, which are immutable."""

    model_config = ConfigDict(frozen=True)


class Run(View):
    """A controller process. ``alive``: it has not ended, and it updated its row recently."""

    id: int
    host: str
    pid: int
    started_ns: int
    last_seen_ns: int
    ended_ns: int | None
    alive: bool
    settings: dict[str, Any] | None


class Switch(View):
    """A switch. ``last_seen_ns``: when it connected or, if it is not connected, disconnected.

    If the controller ended first, it is still the time at which the switch connected.
    """

    dpid: str
    connected: bool
    last_seen_ns: int
    ports: int


class PortName(View):
    """A switch port and the name that the switch reports for it."""

    dpid: str
    port_no: int
    name: str


class Port(PortName):
    """A port and its newest counters, which are None if it was never sampled. ``clamps``: now in force.

    ``fair_share_bytes``: of each active sender, while ``n_i`` also counts flows that wait; None also if the
    port sets no fair share, as under SDTCP alone. ``observes``: the port counts the packets that it would
    change, and changes none. ``counters``: all counters by name.
    """

    up: bool
    rate_bps: int | None
    alarm_up: bool
    observes: bool
    clamps: int
    sampled_ns: int | None
    queue_pkts: int | None
    queue_bytes: int | None
    queue_max_pkts: int | None
    n_i: int | None
    fair_share_bytes: int | None
    capacity_bps: int | None
    drops: int | None
    counters: dict[str, int]


class Bottleneck(View):
    """The bottleneck towards the address ``to``: the port to which its host is attached.

    ``age_s``: the time since the switch counted. ``n_i``: flows through the port. ``buffer_bytes``: what its
    queue can hold; 0: unknown. ``allowance_bytes``: what the port divides into fair shares, which it writes
    into the windows of ACKs; 0: it does not.
    """

    to: str
    port: PortName
    age_s: float
    n_i: int
    capacity_bps: int
    buffer_bytes: int
    allowance_bytes: int


class Flow(View):
    """A directed flow. ``window_bytes``: the smallest of its present clamps; None: it is not punished."""

    id: int
    src: str
    src_port: int
    dst: str
    dst_port: int
    state: str
    opened_ns: int
    closed_ns: int | None
    close_reason: str | None
    last_active_ns: int | None
    rate_bps: int
    sent_bytes: int
    mss_bytes: int
    receiver_wscale: int | None
    sender_wscale: int | None
    handshake_rtt_us: int | None
    window_bytes: int | None


class Hop(View):
    """A switch on a flow's path, with the present counters of its output port."""

    position: int
    in_port: int
    port: Port


class Alarm(View):
    """An alarm or its end. ``repeats``: alarms of the port before it that led to no decision."""

    id: int
    port: PortName
    kind: str
    queue_pkts: int
    queue_bytes: int
    port_rate_bps: int
    n_i: int
    crossing_ns: int
    received_ns: int
    repeats: int
    non_tcp_percent: int


class Candidate(View):
    """A flow with the values by which a policy may rank it."""

    flow_id: int | None = None
    flow: str = ""
    age_s: float | None = None
    sent_bytes: int | None = None
    rate_bps: int | None = None
    state: str | None = None


class Decision(View):
    """The choice of a flow from the candidates, with every input of the equation that gave its window."""

    id: int
    alarm: Alarm | None
    command_id: int | None
    flow_id: int
    flow: str
    port: PortName
    decided_ns: int
    origin: str
    policy: str
    candidates: int
    ranking: list[Candidate]
    equation: int
    capacity_bps: int
    rtt_us: int
    queue_bytes: int
    n: int
    wc_bytes: int
    wr_bytes: int | None
    mss_bytes: int
    alpha: int
    window_bytes: int
    entry: dict[str, Any]
    answer: str | None
    answered_ns: int | None
    allowance_bytes: int


class Clamp(View):
    """A flow's clamp. ``lifted_ns`` is None while it is in force."""

    id: int
    decision_id: int
    flow_id: int
    flow: str
    port: PortName
    window_bytes: int
    pushed_ns: int
    lifted_ns: int | None
    lift_reason: str | None


class Command(View):
    """A command from a person to a controller, and its outcome."""

    id: int
    kind: str
    arguments: dict[str, Any]
    asked_by: str
    asked_ns: int
    taken_ns: int | None
    done_ns: int | None
    succeeded: bool | None
    outcome: str | None


class Link(View):
    """A link in one direction, from ``src`` to ``dst``. ``rate_bps``: the sum of its active flows' rates."""

    src: Port
    dst: PortName
    up: bool
    rate_bps: int


class Host(View):
    """A host, and the switch port behind which it is."""

    mac: str
    ipv4: str | None
    ipv6: str | None
    dpid: str
    port_no: int


class Topology(View):
    """``edges``: the switch ports that lead to hosts."""

    switches: list[Switch]
    links: list[Link]
    hosts: list[Host]
    edges: list[Link]


class Totals(View):
    """Totals of the network. ``alarms_last_hour``: repeated ones included."""

    switches_up: int
    switches: int
    live_flows: int
    clamps: int
    alarms_up: int
    alarms_last_hour: int
    controllers: int


class Series(View):
    """Counters of a port over time. A point stands for ``every_ns`` and holds the worst value of that time.

    ``drops`` and ``clamped`` are the numbers of events in that time.
    """

    port: PortName
    every_ns: int
    at_ns: list[int]
    queue_pkts: list[int]
    n_i: list[int]
    fair_share_bytes: list[int]
    drops: list[int]
    clamped: list[int]


class AlarmCounts(View):
    """The number of alarms in each interval of ``every_ns``."""

    every_ns: int
    at_ns: list[int]
    alarms: list[int]


class Experiment(View):
    """A result folder of the lab."""

    name: str
    title: str
    started: str
    schemes: list[str]
    rows: list[dict[str, Any]]
    has_report: bool


class Page(View):
    """The cursors of the next and the previous page of a list; None if there is no such page."""

    after: str | None = None
    before: str | None = None


class Flows(View):
    """A page of flows, and the cursors of the pages beside it."""

    items: list[Flow]
    page: Page


class Alarms(View):
    """A page of alarms, and the cursors of the pages beside it."""

    items: list[Alarm]
    page: Page


class Clamps(View):
    """A page of clamps, and the cursors of the pages beside it."""

    items: list[Clamp]
    page: Page


class Decisions(View):
    """A page of decisions, and the cursors of the pages beside it."""

    items: list[Decision]
    page: Page


class Commands(View):
    """A page of commands, and the cursors of the pages beside it."""

    items: list[Command]
    page: Page


class FlowStory(View):
    """Everything that is known of a flow: the answer to "why is it slow?". ``now_ns``: when it was asked."""

    now_ns: int
    flow: Flow
    path: list[Hop]
    decisions: list[Decision]
    clamps: list[Clamp]
    commands: list[Command]
    verdict: str
    state: Literal["punished", "was punished", "queue ahead", "free", "closed"]


class PortSeries(View):
    """A port's counters, alarms and clamps in one interval."""

    since_ns: int
    until_ns: int
    figures: Series
    alarms: list[Alarm]
    clamps: list[Clamp]


class Busiest(View):
    """The counters of the busiest ports, and the number of alarms."""

    since_ns: int
    until_ns: int
    ports: list[Series]
    alarms: AlarmCounts


class Problem(View):
    """Why a request failed, and what to do."""

    status: int
    title: str
    detail: str
