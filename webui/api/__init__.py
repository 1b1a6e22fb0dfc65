"""``/api/v1``: everything that the pages show, as JSON, with its OpenAPI document; and ``/metrics``."""

from __future__ import annotations

from flask import Blueprint

from webui.api import document, endpoint, metrics, v1

__all__ = ["api_blueprints", "document", "endpoint", "metrics", "v1"]


def api_blueprints() -> tuple[Blueprint, ...]:
    """The routes for programs."""
    return endpoint.blueprint, metrics.blueprint
