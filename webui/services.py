"""The objects that every request of an application shares."""

from __future__ import annotations

from dataclasses import dataclass

from flask import Flask, current_app

from webui.config import WebSettings
from webui.database import Database
from webui.live_hub import Hub

_EXTENSION = "weir"


@dataclass(frozen=True, slots=True)
class Services:
    """What all requests of an application share."""

    settings: WebSettings
    database: Database
    hub: Hub

    def attach(self, app: Flask) -> None:
        """Make these the services of an application."""
        app.extensions[_EXTENSION] = self


def services(app: Flask | None = None) -> Services:
    """The services of an application, by default of the one that answers the current request."""
    found: Services = (app or current_app).extensions[_EXTENSION]
    return found
