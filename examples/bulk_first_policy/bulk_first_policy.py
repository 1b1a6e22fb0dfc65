"""A policy for SDTCP: bulk transfers are slowed before all other flows.

Install it with ``pip install --no-deps examples/bulk_first_policy``, and set ``policy = "bulk-first"`` in the
section ``[sdtcp]``.
"""

from __future__ import annotations

from flowdb.flow import Flow, FlowState
from flowdb.index import Rank
from sdtcp_app.policies import PolicyOptions

BULK_PORTS = frozenset({873, 9000})
"""rsync, and a backup service."""


def bulk_first(_options: PolicyOptions) -> Rank:
    """Active flows to a bulk port first, then other active flows; in each group the longest-lived first."""

    def rank(flow: Flow) -> tuple[bool, bool, int]:
        is_idle = flow.state is not FlowState.ACTIVE
        return is_idle, flow.key.dst_port not in BULK_PORTS, flow.opened_ns

    return rank
