"""The ``[sccp]`` section."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from app_base.scope import Scope
from app_base.settings import MetricsAddress, ScopeSettings
from sccp_app.common_rtt import RttPolicy
from sccp_app.core import (
    MOST_ROWS,
    TABLE_I,
    TABLE_I_AS_PUBLISHED,
    Addition,
    PortPolicy,
    Row,
    scope_rows,
)


class SccpSettings(ScopeSettings):
    """SCCP's settings. They hold for every port."""

    mode: Literal["act", "observe"] = Field(
        "act",
        description='"observe": shares are computed and shown, and the switches count the ACKs that they '
        "would change, but no packet is changed",
    )

    common_rtt: Literal["fixed", "measured", "auto"] = Field(
        "auto",
        description='"auto": each port begins with the shortest RTT of its handshakes, or with '
        "`common_rtt_us` if that is longer, and corrects how many bytes may be in flight so that the link "
        'stays full and the queue short. "fixed" (as in the paper): every port uses `common_rtt_us`. '
        '"measured": each port derives its common RTT from the last 256 handshakes of its flows, and uses '
        "`common_rtt_us` until it has seen 16",
    )
    common_rtt_us: int = Field(
        600,
        ge=1,
        le=10_000_000,
        description="the common RTT of equation (1), in microseconds; set it somewhat above the flows' own "
        "RTT (the paper uses 300 in simulation and 600 on its testbed)",
    )
    share_by: Literal["flow", "host"] = Field(
        "flow",
        description='"flow" (as in the paper): each flow of a port has an equal share. "host": each host has '
        "one, which its flows divide, so that it gains nothing by more connections; needs "
        '`common_rtt = "auto"` and `shares_among_active`',
    )
    rtt_percentile: float = Field(
        90.0, gt=0, le=100, description="percentile of the handshake times that a measured common RTT uses"
    )
    rtt_headroom: float = Field(1.5, ge=1, le=100, description="factor applied to that percentile")
    most_common_rtt_us: int = Field(
        2000, ge=1, le=10_000_000, description="upper limit of a measured common RTT, in microseconds"
    )
    capacity_bps: int = Field(
        0, ge=0, le=10**15, description="capacity of every port in bit/s; 0: the rate that each port reports"
    )
    least_window_bytes: int = Field(
        0,
        ge=0,
        le=2**30,
        description="smallest window of a clamp, in bytes; 0: one MSS of the flow (section V). A smaller "
        "value suits only hosts without silly window avoidance",
    )
    fits_segments: bool = Field(
        True,
        description="the switch changes MSS and window scale in the SYNs of hosts, so that a share is a "
        "whole number of segments, and the queue holds a segment of each flow; false: SYNs pass unchanged",
    )
    refines_scale: bool = Field(
        True,
        description="part of `fits_segments`: the switch makes the window scale finer and translates "
        "windows; false: segments are whole steps of the host's own scale",
    )
    sets_psh: bool = Field(
        True,
        description="part of `fits_segments`: the segments of a flow that may have one in flight leave with "
        "PSH, so that Linux does not delay their ACKs",
    )
    shares_among_active: bool = Field(
        True,
        description="a port is shared among its active senders; false (as in the paper): among all of N_i",
    )
    remembers_crowd: bool = Field(
        True,
        description="a port remembers the peak of N_i, and gives flows that wait for the next round the "
        "share of that many; false: the share of N_i",
    )
    grants_two_segments: bool = Field(
        True,
        description="the least window of a flow whose receiver delays its ACKs is two segments, if those of "
        "all flows fit into queue and link, and otherwise keep-alives follow its segments; false (as in the "
        "paper): one MSS, and no keep-alives",
    )
    counts_resets: bool = Field(
        True,
        description="a RST takes its flow out of N_i; false (as in the paper): only a FIN does",
    )
    yields_to_long_rtt: bool = Field(
        True,
        description="a port does not clamp if all recent handshakes took more than twice a common RTT that "
        "is fixed or measured; false (as in the paper): it clamps whatever the RTT is",
    )
    metrics: MetricsAddress | None = Field(
        None,
        description='HOST:PORT where Prometheus reads metrics, for example "127.0.0.1:9466"; none: nowhere',
    )

    @model_validator(mode="after")
    def _fits_the_switch(self) -> SccpSettings:
        needed = len(scope_rows(self.scope))
        if needed > MOST_ROWS:
            raise ValueError(
                f"act_for and protect need {needed} entries, and a switch has room for {MOST_ROWS}: "
                "name fewer or larger networks"
            )
        return self

    @model_validator(mode="after")
    def _can_share_by_host(self) -> SccpSettings:
        if self.share_by == "host" and self.common_rtt != "auto":
            raise ValueError(
                f'share_by = "host" needs common_rtt = "auto", not "{self.common_rtt}": only a port that '
                "corrects its allowance divides it among hosts"
            )
        if self.share_by == "host" and not self.shares_among_active:
            raise ValueError(
                'share_by = "host" needs shares_among_active = true: it divides among active senders'
            )
        return self

    @property
    def scope(self) -> Scope:
        """Where SCCP acts."""
        return self.scope_if(self.mode == "act")

    @property
    def policy(self) -> PortPolicy:
        corrects = self.common_rtt == "auto"
        omits = frozenset(addition for addition, kept in self._additions.items() if not kept)
        return PortPolicy(
            self.common_rtt_us,
            self.capacity_bps,
            self.least_window_bytes,
            corrects,
            omits,
            by_host=self.share_by == "host",
        )

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows of Table I."""
        return TABLE_I if self.counts_resets else TABLE_I_AS_PUBLISHED

    @property
    def _additions(self) -> dict[Addition, bool]:
        """Each addition to the paper, and whether ports have it."""
        return {
            Addition.FITTING: self.fits_segments,
            Addition.FINER_SCALE: self.refines_scale,
            Addition.PSH: self.sets_psh,
            Addition.ACTIVE_SENDERS: self.shares_among_active,
            Addition.CROWD: self.remembers_crowd,
            Addition.TWO_SEGMENTS: self.grants_two_segments,
        }

    @property
    def rtt_policy(self) -> RttPolicy:
        is_measured = self.common_rtt == "measured"
        head = self.rtt_percentile, self.rtt_headroom, self.most_common_rtt_us
        return RttPolicy(self.common_rtt_us, is_measured, *head, self.yields_to_long_rtt)
