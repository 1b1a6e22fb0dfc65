"""The ``[fabric]`` section."""

from __future__ import annotations

from pydantic import Field

from openflow_ext.settings import Section


class FabricSettings(Section):
    """Bounds on what one switch can make the controller remember."""

    max_hosts: int = Field(default=16_384, ge=1)
    max_connections: int = Field(default=500_000, ge=1)
