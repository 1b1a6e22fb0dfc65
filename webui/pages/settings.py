"""The settings of the controllers and of the dashboard itself."""

from __future__ import annotations

from sqlalchemy.orm import Session

from webui.access.guard import guard
from webui.live.page import Query, Values, live_page
from webui.parameters import NoParameters, parse
from webui.queries import network
from webui.services import services


@live_page("/settings", "Settings", "controllers", navigation=70, template="settings.html")
def settings(session: Session, query: Query, now_ns: int) -> Values:
    parse(NoParameters, query)
    return {
        "runs": network.runs(session, now_ns),
        "web": services().settings,
        "accounts": guard().accounts,
    }
