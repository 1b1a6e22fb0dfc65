"""What the checks of every request share: settings, accounts, sessions, limits and counts of refusals."""

from __future__ import annotations

from dataclasses import dataclass, field

from flask import Flask, current_app

from webui.access.accounts import Accounts
from webui.access.login_limits import LoginLimits
from webui.access.refusals import Refusals
from webui.access.sessions import Sessions
from webui.config import WebSettings

_EXTENSION = "weir guard"


@dataclass(frozen=True, slots=True)
class Guard:
    """What decides who may read and act: accounts, sessions and limits. One for each application."""

    settings: WebSettings
    accounts: Accounts
    sessions: Sessions
    login_limits: LoginLimits = field(default_factory=LoginLimits)
    refusals: Refusals = field(default_factory=Refusals)

    def attach(self, app: Flask) -> None:
        """Make this the guard of an application."""
        app.extensions[_EXTENSION] = self


def guard(app: Flask | None = None) -> Guard:
    """The guard of an application, by default of the one that answers the current request."""
    found: Guard = (app or current_app).extensions[_EXTENSION]
    return found
