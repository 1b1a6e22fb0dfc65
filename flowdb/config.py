"""The ``[flowdb]`` section."""

from __future__ import annotations

import os

from pydantic import Field

from openflow_ext.settings import Section

DEFAULT_URL = "sqlite:////var/lib/weir/weir.db"


def database_url(value: str) -> str:
    """A database URL from a URL or a plain path, which means an SQLite file."""
    return value if "://" in value else f"sqlite:///{os.path.abspath(value)}"


class FlowDbSettings(Section):
    """Where the flow database is, and how much may wait for it.

    ``url``: an SQLAlchemy URL or the path of an SQLite file; ``$WEIR_DB`` goes before it.
    ``adopt_within_s``: a new controller takes over the open flows of one that lived at most so long ago.
    ``max_pending``: the most rows that wait in memory while the database cannot be written.
    """

    url: str = Field(default=DEFAULT_URL, min_length=1)
    adopt_within_s: float = Field(default=60.0, ge=0)
    max_pending: int = Field(default=100_000, ge=1000)

    @property
    def database_url(self) -> str:
        return database_url(os.environ.get("WEIR_DB") or self.url)
