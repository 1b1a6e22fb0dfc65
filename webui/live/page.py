"""A live page registers itself: address, title, regions, template and navigation entry in one place.

A page is a template and regions. A region is a template in ``templates/regions`` that is rendered from the
same values. The browser loads the whole page once; from then on the hub sends the regions that changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from flask import Blueprint, abort, render_template, request
from werkzeug.datastructures import MultiDict

from webui.live_hub import NoSuchPage
from webui.navigation import add_entry
from webui.services import services

Query: TypeAlias = MultiDict[str, str]
Values: TypeAlias = dict[str, Any]
Load: TypeAlias = Callable[..., Values | None]
"""Called with a database session, the query parameters, the time in ns, and the parts of the address.

Returns the values for the templates, or None if the thing that the address names does not exist.
"""

EVERY_REGION = "live_page.html"
"""A template that shows the title and each region in a card."""

blueprint = Blueprint("live", __name__)


@dataclass(frozen=True, slots=True)
class LivePage:
    """What the templates and the hub need to know of a page."""

    name: str
    rule: str
    title: str
    regions: tuple[str, ...]
    load: Load
    template: str
    missing: str


PAGES: dict[str, LivePage] = {}
"""Every live page by its endpoint, ``live.<function name>``."""


def live_page(
    rule: str,
    title: str,
    *regions: str,
    navigation: int | None = None,
    template: str = EVERY_REGION,
    missing: str = "there is no such page",
) -> Callable[[Load], Load]:
    """Register the decorated function as a page at the address ``rule``.

    ``navigation``: the position of the page in the navigation bar; None: it has no entry. ``missing``: what
    the error page says if the function returns None. Raises ValueError if another page has this address.
    """

    def register(load: Load) -> Load:
        page = LivePage(load.__name__, rule, title, regions, load, template, missing)
        if taken := [other.name for other in PAGES.values() if other.rule == rule]:
            raise ValueError(f"the pages {taken[0]} and {page.name} have the same address {rule}")
        PAGES[f"live.{page.name}"] = page
        if navigation is not None:
            add_entry(f"live.{page.name}", title, navigation)

        def view(**named: Any) -> str:
            database = services().database
            with database.reading() as session:
                values = load(session, request.args, database.now_ns(session), **named)
                if values is None:
                    abort(404, missing)
            return render_template(template, live_page=page, **values)

        blueprint.add_url_rule(rule, page.name, view)
        return load

    return register


def rendered_regions(page: LivePage, query: Query, **named: Any) -> dict[str, str]:
    """The regions of a page as HTML. Raises NoSuchPage if the thing that it shows does not exist."""
    database = services().database
    with database.reading() as session:
        values = page.load(session, query, database.now_ns(session), **named)
    if values is None:
        raise NoSuchPage(page.rule)
    return {name: render_template(f"regions/{name}.html", **values) for name in page.regions}
