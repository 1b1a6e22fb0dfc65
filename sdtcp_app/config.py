"""The ``[sdtcp]`` section."""

from __future__ import annotations

from collections.abc import Container
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from app_base.scope import Scope
from app_base.settings import MetricsAddress, RuleSettings, ScopeSettings
from flowdb.flow import NS_PER_S, FiveTuple, Flow, Hop
from flowdb.index import Rank
from sdtcp_app.core_types import Parameters
from sdtcp_app.policies import PolicyOptions, Rule, load_policy, sparing
from weir_base.settings import Section

_SAMPLE = Flow(1, FiveTuple("10.0.0.1", "10.0.0.2", 1, 2), (Hop(1, 1, 2),), 1, 1460, 7)

Weight = Annotated[float, Field(allow_inf_nan=False)]


class ScoreSettings(RuleSettings):
    """A rule of the policy ``priority``."""

    score: Weight = Field(description="added to the score of each flow that the rule matches")

    @property
    def rule(self) -> Rule:
        return Rule(self.src, self.dst, self.src_port, self.dst_port, self.score)


class PrioritySettings(Section):
    """Weights of the policy ``priority``. The flow with the highest score is slowed first."""

    per_s: Weight = Field(1.0, description="score for each second of a flow's age")
    per_mb: Weight = Field(0.0, description="score for each MB that a flow has sent")
    per_mbps: Weight = Field(0.0, description="score for each Mbit/s of a flow's rate")
    rules: tuple[ScoreSettings, ...] = Field((), description="rules that add to the score of certain flows")

    @property
    def options(self) -> PolicyOptions:
        rules = tuple(rule.rule for rule in self.rules)
        return PolicyOptions(self.per_s, self.per_mb, self.per_mbps, rules)


def _checked_policy(name: str) -> str:
    """Raises ValueError unless the policy can be loaded and ranks a flow with a tuple or None."""
    policy = load_policy(name)
    try:
        ranked = policy(PolicyOptions())(_SAMPLE)
    except Exception as error:
        raise ValueError(f"policy {name!r} fails on an ordinary flow: {error!r}") from error
    if not isinstance(ranked, tuple | None):
        raise ValueError(f"policy {name!r} ranks a flow as {ranked!r}; return a tuple or None")
    return name


class SdtcpSettings(ScopeSettings):
    """SDTCP's settings. They hold for every port, and may be changed while it runs, except ``metrics``.

    A change of ``policy``, ``priority`` or ``protect`` ranks all flows again; alarms wait for that.
    """

    mode: Literal["alarm", "reflex", "weights", "observe"] = Field(
        "alarm",
        description='"alarm": the controller answers each alarm. "observe": the same, and all is recorded, '
        "but no packet is changed: the entries only count the ACKs that they would change. "
        '"reflex": the first `reflex_ranks` '
        "candidates of every port are armed in the switches, which take the first step by themselves. "
        '"weights" (experimental, beside SCCP with a corrected allowance): they are armed, and have a small '
        "weight in the division of the allowance, so that bursts get nearly all of it; nothing else happens",
    )
    reflex_ranks: int = Field(8, ge=1, le=1023, description="number of candidates armed at a port")
    reflex_every_ms: int = Field(
        100, ge=1, le=60_000, description="least time between two armings of the same port, in ms"
    )
    policy: Annotated[str, AfterValidator(_checked_policy)] = Field(
        "longest-lived-active",
        description='which flow is slowed first: "longest-lived" (the paper), "longest-lived-active", '
        '"largest-volume", "highest-rate", "priority", the name of an entry point, or MODULE:FUNCTION',
    )
    priority: PrioritySettings = Field(PrioritySettings(), description='weights of the policy "priority"')
    standing_s: float = Field(
        10.0,
        ge=0,
        le=3600,
        description="seconds for which the age and the volume of a flow that ended are remembered, for the "
        "next flow of the same two hosts and port: a flow that reconnects does not become young. Only flows "
        "that were slowed or had sent 1 MB are remembered; 0: none",
    )
    k_pkts: int = Field(
        20,
        ge=1,
        description="queue length K that raises an alarm, in packets; 20 suits 1 Gbit/s, 65 suits 10 Gbit/s",
    )
    rtt_us: int = Field(
        1000,
        ge=10,
        le=10_000_000,
        description="RTT of an empty network, in microseconds: it times alarms (RTT/2) and steps (3/2 RTT), "
        "and stands for the RTT of equation (1) if no handshake was measured",
    )
    alpha: int = Field(
        5, ge=1, le=255, description="MSS by which each ACK lowers the window of a punished flow"
    )
    corrects_allowance: bool = Field(
        True,
        description="each port corrects how many bytes may be in flight, and lowers windows of punished "
        "flows no further than the link needs; false: as in the paper, also if that leaves the link idle. "
        "Switching it off takes effect for new ports. Where SCCP sets fair shares, `[sccp] common_rtt` "
        "decides instead",
    )
    fits_segments: bool = Field(
        True,
        description="part of `corrects_allowance`: the switch changes MSS and window scale in the SYNs of "
        "hosts, so that a window is a whole number of segments. It does so only if the controller acts "
        "everywhere and spares no flow; false: SYNs pass unchanged. Where SCCP sets fair shares, "
        "`[sccp] fits_segments` decides instead",
    )
    clamp_limit_s: float = Field(
        2.0,
        gt=0,
        le=3600,
        description="seconds after a port's last alarm at which its clamps end, even if burst flows are open",
    )
    idle_timeout_s: int = Field(
        5, ge=1, le=0xFFFF, description="idle timeout of a clamp's entry, in seconds; the paper uses 10"
    )
    hard_timeout_s: int = Field(
        30,
        ge=1,
        le=0xFFFF,
        description="hard timeout of a clamp's entry, in seconds, so that no clamp long outlives its "
        "controller; the paper has none",
    )
    metrics: MetricsAddress | None = Field(
        None,
        description='HOST:PORT where Prometheus reads metrics, for example "127.0.0.1:9465"; none: nowhere',
    )

    @property
    def arms_ports(self) -> bool:
        """Whether candidates are armed in the switches before anything happens."""
        return self.mode in ("reflex", "weights")

    @property
    def scope(self) -> Scope:
        """Where SDTCP acts."""
        return self.scope_if(self.mode != "observe")

    @property
    def fits_ports(self) -> bool:
        """Whether ports fit segments. A SYN does not show whether its flow is in the scope: all must be."""
        return self.corrects_allowance and self.fits_segments and self.scope == Scope()

    @property
    def alarm_k_pkts(self) -> int:
        """The K of every port; 0: ports raise no alarm."""
        return 0 if self.mode == "weights" else self.k_pkts

    @property
    def parameters(self) -> Parameters:
        return Parameters(
            rtt_us=self.rtt_us,
            k_pkts=self.k_pkts,
            alpha=self.alpha,
            clamp_limit_ns=int(self.clamp_limit_s * NS_PER_S),
            hard_limit_ns=self.hard_timeout_s * NS_PER_S,
            corrects_allowance=self.corrects_allowance,
            scope=self.scope,
        )

    def rank(self, protected: Container[FiveTuple], policy: str | None = None) -> Rank:
        """The rank of ``policy``, by default the configured one; protected flows have none.

        Raises ValueError.
        """
        return sparing(load_policy(policy or self.policy)(self.priority.options), self.protected, protected)
