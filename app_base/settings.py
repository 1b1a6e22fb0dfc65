"""Types of settings that the sections of several apps share."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

MetricsAddress = Annotated[str, Field(pattern=r"^(\[[0-9A-Fa-f:]+\]|[^:\[\]]+):\d{1,5}$")]
"""``HOST:PORT`` on which Prometheus may ask. The base class of apps serves a setting named ``metrics``."""
