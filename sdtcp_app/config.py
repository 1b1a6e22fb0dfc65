"""The ``[sdtcp]`` section."""

from __future__ import annotations

from collections.abc import Container
from importlib import import_module
from importlib.metadata import entry_points
from ipaddress import IPv4Network, IPv6Network
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from flowdb.flow import NS_PER_S, FiveTuple, Flow, Hop
from flowdb.index import Rank
from openflow_ext.settings import Section
from sdtcp_app.decisions import Parameters
from sdtcp_app.policies import ENTRY_POINTS, POLICIES, Policy, PolicyOptions, Rule, sparing
from telemetry_app.config import MetricsAddress

_SAMPLE = Flow(1, FiveTuple("10.0.0.1", "10.0.0.2", 1, 2), (Hop(1, 1, 2),), 1, 1460, 7)

Port = Annotated[int, Field(ge=0, le=0xFFFF)]
Weight = Annotated[float, Field(allow_inf_nan=False)]


class RuleSettings(Section):
    """Flows by the 5-tuple of their data; a part that is not given is any. ``src``, ``dst``: networks."""

    src: IPv4Network | IPv6Network | None = None
    dst: IPv4Network | IPv6Network | None = None
    src_port: Port | None = None
    dst_port: Port | None = None

    @model_validator(mode="after")
    def _says_something(self) -> RuleSettings:
        if not self.model_fields_set:
            raise ValueError("a rule that fits every flow; give src, dst, src_port or dst_port")
        return self

    @property
    def rule(self) -> Rule:
        return Rule(**dict(self))


class ScoreSettings(RuleSettings):
    """A rule of ``priority`` and what it adds to the score of the flows that it fits."""

    score: Weight


class PrioritySettings(Section):
    """The policy ``priority``: a flow's score is so much a second of age, a MB sent, a Mbit/s of rate."""

    per_s: Weight = 1.0
    per_mb: Weight = 0.0
    per_mbps: Weight = 0.0
    rules: tuple[ScoreSettings, ...] = ()

    @property
    def options(self) -> PolicyOptions:
        rules = tuple(rule.rule for rule in self.rules)
        return PolicyOptions(self.per_s, self.per_mb, self.per_mbps, rules)


def load_policy(name: str) -> Policy:
    """A policy by its name, its entry point or ``module:function``. Raises ValueError."""
    try:
        if policy := POLICIES.get(name) or _installed(name):
            return policy
        module, colon, attribute = name.partition(":")
        if colon:
            found: Policy = getattr(import_module(module), attribute)
            return found
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"policy {name!r} cannot be loaded: {error}") from error
    known = ", ".join(POLICIES)
    raise ValueError(f"{name!r} is no policy; use one of {known}, or module:function")


def _installed(name: str) -> Policy | None:
    found: Policy | None = next((point.load() for point in entry_points(group=ENTRY_POINTS, name=name)), None)
    return found


def _checked_policy(name: str) -> str:
    """That a policy can be loaded and ranks a flow as the index needs it."""
    policy = load_policy(name)
    try:
        ranked = policy(PolicyOptions())(_SAMPLE)
    except Exception as error:
        raise ValueError(f"policy {name!r} fails on a plain flow: {error!r}") from error
    if not isinstance(ranked, tuple | None):
        raise ValueError(f"policy {name!r} ranks a flow as {ranked!r}, which is no tuple")
    return name


class SdtcpSettings(Section):
    """SDTCP's settings, for every port. All but ``metrics`` may be changed while it runs.

    A change of ``policy``, ``priority`` or ``protect`` ranks all flows anew; alarms wait for it.

    ``mode``: "reflex" keeps the first ``reflex_ranks`` candidates of every port armed in the switches, which
    then take the first step by themselves; a port is armed anew at most every ``reflex_every_ms``.
    ``policy``: who is slowed first: "longest-lived" (the paper), "longest-lived-active", "largest-volume",
    "highest-rate", "priority" (see ``[sdtcp.priority]``), or one's own (``policies.py``).
    ``protect``: flows, both directions, that are never slowed, whatever the policy.
    ``k_pkts``: the queue length that raises an alarm; 20 suits 1 Gbit/s, 65 suits 10 Gbit/s (DCTCP's K).
    ``rtt_us``: the round trip of an empty network; it times the alarms (RTT/2), the steps (3/2 RTT) and
    is equation (1)'s RTT where no handshake was measured. ``alpha``: MSS that a punished flow's window falls
    by with each ACK.
    ``clamp_limit_s``: clamps end so long after a port's last alarm even if burst flows have not ended.
    ``idle_timeout_s``, ``hard_timeout_s``: the entries' own timeouts, by which clamps end when the
    controller dies. The paper has 10 and none; with a hard one no clamp outlives its controller by much.
    ``metrics``: where Prometheus may ask, "127.0.0.1:9465" say; none: nowhere.
    """

    mode: Literal["alarm", "reflex"] = "alarm"
    reflex_ranks: int = Field(default=8, ge=1, le=1023)
    reflex_every_ms: int = Field(default=100, ge=1, le=60_000)
    policy: Annotated[str, AfterValidator(_checked_policy)] = "longest-lived-active"
    priority: PrioritySettings = PrioritySettings()
    protect: tuple[RuleSettings, ...] = ()
    k_pkts: int = Field(default=20, ge=1)
    rtt_us: int = Field(default=1000, ge=10, le=10_000_000)
    alpha: int = Field(default=5, ge=1, le=255)
    clamp_limit_s: float = Field(default=2.0, gt=0, le=3600)
    idle_timeout_s: int = Field(default=5, ge=1, le=0xFFFF)
    hard_timeout_s: int = Field(default=30, ge=1, le=0xFFFF)
    metrics: MetricsAddress | None = None

    @property
    def parameters(self) -> Parameters:
        return Parameters(
            rtt_us=self.rtt_us,
            k_pkts=self.k_pkts,
            alpha=self.alpha,
            clamp_limit_ns=int(self.clamp_limit_s * NS_PER_S),
            hard_limit_ns=self.hard_timeout_s * NS_PER_S,
        )

    def rank(self, protected: Container[FiveTuple], policy: str | None = None) -> Rank:
        """The rank of ``policy``, by default the configured one; protected flows have none.

        Raises ValueError.
        """
        rules = tuple(rule.rule for rule in self.protect)
        return sparing(load_policy(policy or self.policy)(self.priority.options), rules, protected)
