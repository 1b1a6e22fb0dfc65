"""The ``[flowdb]`` section."""

from __future__ import annotations

import os

from pydantic import Field

from flowdb.retention import Retention
from openflow_ext.settings import Section

DEFAULT_URL = "sqlite:////var/lib/weir/weir.db"


def database_url(value: str) -> str:
    """A database URL from a URL or a plain path, which means an SQLite file."""
    return value if "://" in value else f"sqlite:///{os.path.abspath(value)}"


class FlowDbSettings(Section):
    """Where the flow database is, how much may wait for it, and how long it keeps what is over.

    ``url``: an SQLAlchemy URL (sqlite or postgresql) or the path of an SQLite file; ``$WEIR_DB`` goes before
    it. ``adopt_within_s``: a new controller takes over the open flows of one that lived at most so long ago.
    ``max_pending``: the most changes that wait in memory while the database cannot be written, 1 KB each.
    ``keep_flows_days``: closed flows, alarms, decisions and clamps; ``keep_samples_days``: samples of ports.
    """

    url: str = Field(default=DEFAULT_URL, min_length=1)
    adopt_within_s: float = Field(default=60.0, ge=0)
    max_pending: int = Field(default=250_000, ge=1000)
    keep_flows_days: float = Field(default=30.0, gt=0, le=36_500)
    keep_samples_days: float = Field(default=7.0, gt=0, le=36_500)

    @property
    def database_url(self) -> str:
        return database_url(os.environ.get("WEIR_DB") or self.url)

    @property
    def retention(self) -> Retention:
        return Retention(self.keep_flows_days, self.keep_samples_days)
