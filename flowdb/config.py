"""The ``[flowdb]`` section."""

from __future__ import annotations

import os

from pydantic import Field

from flowdb.database_url import has_password
from flowdb.retention import Retention
from weir_base.settings import Section, SettingsError

DEFAULT_URL = "sqlite:////var/lib/weir/weir.db"


def database_url(value: str) -> str:
    """A database URL from a URL or a plain path, which means an SQLite file."""
    return value if "://" in value else f"sqlite:///{os.path.abspath(value)}"


def database_url_of_argument(value: str) -> str:
    """``database_url`` for the argument of a command. Raises SettingsError if it contains a password.

    Every user of a machine can see the arguments of all programs.
    """
    if has_password(url := database_url(value)):
        raise SettingsError(
            "--db: a password in an argument is visible to other users; put the URL into $WEIR_DB or"
            " [flowdb] url, or the password into ~/.pgpass"
        )
    return url


class FlowDbSettings(Section):
    """Where the flow database is, how much may wait for it, and how long it keeps old rows."""

    url: str = Field(
        DEFAULT_URL,
        min_length=1,
        description="SQLAlchemy URL (sqlite or postgresql) or path of an SQLite file; `WEIR_DB` overrides it",
    )
    adopt_within_s: float = Field(
        60.0,
        ge=0,
        description="a new controller adopts the open flows of one that was alive at most this long ago",
    )
    max_pending: int = Field(
        250_000,
        ge=1000,
        description="limit of changes that wait in memory while the database cannot be written, 1 KB each; "
        "one switch can cause 4/5 of them",
    )
    keep_flows_days: float = Field(
        30.0,
        gt=0,
        le=36_500,
        description="days for which closed flows, alarms, decisions and clamps are kept",
    )
    keep_samples_days: float = Field(
        7.0, gt=0, le=36_500, description="days for which samples of port counters are kept"
    )

    keep_gb: float = Field(
        10.0,
        ge=0,
        le=1_000_000,
        description="GB of rows that are kept; above that the oldest are deleted before their days are over; "
        "0: no limit",
    )

    @property
    def database_url(self) -> str:
        return database_url(os.environ.get("WEIR_DB") or self.url)

    @property
    def retention(self) -> Retention:
        most_bytes = round(self.keep_gb * 1e9) or None
        return Retention(self.keep_flows_days, self.keep_samples_days, most_bytes)
