"""What the requests of an application share."""

from __future__ import annotations

from dataclasses import dataclass

from flask import current_app

from webui.accounts import Accounts
from webui.config import WebSettings
from webui.database import Database
from webui.live import Hub
from webui.security import Attempts

KEY = "weir"


@dataclass(frozen=True, slots=True)
class Parts:
    settings: WebSettings
    database: Database
    accounts: Accounts
    hub: Hub
    attempts: Attempts


def parts() -> Parts:
    """The parts of the application that answers the request."""
    found: Parts = current_app.extensions[KEY]
    return found
