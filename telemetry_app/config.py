"""The ``[telemetry]`` section, and what the sections of those who serve figures share."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from openflow_ext.settings import Section

MetricsAddress = Annotated[str, Field(pattern=r"^(\[[0-9A-Fa-f:]+\]|[^:\[\]]+):\d{1,5}$")]
"""``HOST:PORT`` where Prometheus may ask."""


class TelemetrySettings(Section):
    """``sample_s``: how often each switch is asked what its ports count; 0: never.

    How long samples are kept is ``[flowdb] keep_samples_days``.
    """

    sample_s: float = Field(default=1.0, ge=0, le=3600)
