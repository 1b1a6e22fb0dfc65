"""The ``[telemetry]`` section of the settings."""

from __future__ import annotations

from pydantic import Field

from weir_base.settings import Section


class TelemetrySettings(Section):
    """How often port counters are sampled."""

    sample_s: float = Field(
        1.0,
        ge=0,
        le=3600,
        description="seconds between two requests for a switch's port counters; 0: never. "
        "`[flowdb] keep_samples_days` sets how long samples are kept",
    )
