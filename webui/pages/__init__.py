"""The pages. Every module of this folder is found and imported; no list names them.

A live page registers itself by the decorator ``webui.live.page.live_page``. A module with other routes has
a Flask ``blueprint``. `docs/extending.md` has a recipe for a new page.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from flask import Blueprint


def page_blueprints() -> list[Blueprint]:
    """Import every page; returns the blueprints that the modules have."""
    modules = [import_module(f"{__name__}.{found.name}") for found in iter_modules(__path__)]
    return [module.blueprint for module in modules if hasattr(module, "blueprint")]
