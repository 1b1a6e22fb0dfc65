"""The ``[sdtcp]`` section."""

from __future__ import annotations

from pydantic import Field

from openflow_ext.settings import Section
from sdtcp_app.core import Policy

_NS_PER_S = 1_000_000_000


class SdtcpSettings(Section):
    """SDTCP's settings, for every port.

    ``k_pkts``: the queue length that raises an alarm; 20 suits 1 Gbit/s, 65 suits 10 Gbit/s (DCTCP's K).
    ``rtt_us``: the round trip of an empty network; it times the alarms (RTT/2), the steps (3/2 RTT) and
    is equation (1)'s RTT. ``alpha``: MSS that a punished flow's window falls by with each ACK.
    ``clamp_limit_s``: clamps end so long after a port's last alarm even if burst flows have not ended.
    ``idle_timeout_s``, ``hard_timeout_s``: the entries' own timeouts, by which clamps end when the
    controller dies. The paper has 10 and none; with a hard one no clamp outlives its controller by much.
    """

    k_pkts: int = Field(default=20, ge=1)
    rtt_us: int = Field(default=1000, ge=10, le=10_000_000)
    alpha: int = Field(default=5, ge=1, le=255)
    clamp_limit_s: float = Field(default=2.0, gt=0, le=3600)
    idle_timeout_s: int = Field(default=5, ge=1, le=0xFFFF)
    hard_timeout_s: int = Field(default=30, ge=1, le=0xFFFF)

    @property
    def policy(self) -> Policy:
        return Policy(
            rtt_us=self.rtt_us,
            k_pkts=self.k_pkts,
            alpha=self.alpha,
            clamp_limit_ns=int(self.clamp_limit_s * _NS_PER_S),
            hard_limit_ns=self.hard_timeout_s * _NS_PER_S,
        )
