"""The OpenAPI document, generated from the models of the endpoints."""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from webui.api.endpoint import ENDPOINTS, Endpoint, blueprint
from webui.views import Problem

REF = "#/components/schemas/{model}"
PLACEHOLDER = re.compile(r"<(\w+):(\w+)>|<(\w+)>")
CONVERTER_SCHEMAS: dict[str, dict[str, Any]] = {
    "dpid": {"type": "string", "pattern": "^[0-9a-f]{16}$"},
    "rowid": {"type": "integer", "minimum": 0, "maximum": 2**53 - 1},
    "uint32": {"type": "integer", "minimum": 0, "maximum": 2**32 - 1},
    "string": {"type": "string", "minLength": 1, "pattern": "^[^/]+$"},
}
PROBLEMS = {
    "400": "A parameter is incorrect; the answer names it.",
    "401": "Log in, or send a token.",
    "403": "The token has the scope read only.",
    "404": "There is no such thing.",
    "415": "The body is not JSON.",
    "503": "The database cannot be read, or the query took too long.",
}


@blueprint.get("/openapi.json")
def openapi() -> dict[str, Any]:
    return document()


def document() -> dict[str, Any]:
    """The OpenAPI document of ``/api/v1``."""
    models: dict[type[BaseModel], Any] = {Problem: "serialization"}
    for one in ENDPOINTS:
        models[one.answer] = "serialization"
        if one.body is not None:
            models[one.body] = "validation"
    named, whole = models_json_schema(list(models.items()), ref_template=REF)
    paths: dict[str, dict[str, Any]] = {}
    for one in ENDPOINTS:
        paths.setdefault(path_of(one), {})[one.method] = _operation(one, named)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Weir",
            "version": "1",
            "description": "Read access to the flow database, and commands to the controllers. Times are Unix"
            " times in nanoseconds. A switch is named by its datapath id in 16 hexadecimal digits.",
        },
        "servers": [{"url": "/api/v1"}],
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "schemas": whole["$defs"],
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def path_of(one: Endpoint) -> str:
    """An endpoint's path as OpenAPI writes it."""
    return PLACEHOLDER.sub(lambda found: f"{{{found[2] or found[3]}}}", one.rule)


def _operation(one: Endpoint, named: Any) -> dict[str, Any]:
    answer = named[one.answer, "serialization"]
    problem = _json(named[Problem, "serialization"])
    operation: dict[str, Any] = {
        "operationId": one.name,
        "summary": one.summary,
        "parameters": [*_path_parameters(one.rule), *_query_parameters(one)],
        "responses": {
            "200" if one.method == "get" else "201": {
                "description": "Done.",
                "content": _json({"type": "array", "items": answer} if one.is_list else answer),
            },
            **{code: {"description": text, "content": problem} for code, text in PROBLEMS.items()},
        },
    }
    if one.body is not None:
        operation["requestBody"] = {"required": True, "content": _json(named[one.body, "validation"])}
        operation["security"] = [{"token": []}]
    return operation


def _json(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _path_parameters(rule: str) -> list[dict[str, Any]]:
    return [
        {
            "name": found[2] or found[3],
            "in": "path",
            "required": True,
            "schema": CONVERTER_SCHEMAS[found[1] or "string"],
        }
        for found in PLACEHOLDER.finditer(rule)
    ]


def _query_parameters(one: Endpoint) -> list[dict[str, Any]]:
    schema = one.args.model_json_schema()
    return [
        {
            "name": name,
            "in": "query",
            "required": name in schema.get("required", ()),
            "schema": _if_present(about),
        }
        for name, about in schema.get("properties", {}).items()
    ]


def _if_present(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a parameter if it is present: without null and without the default."""
    choices = [choice for choice in schema.get("anyOf", []) if choice.get("type") != "null"]
    rest = {key: value for key, value in schema.items() if key not in ("anyOf", "title", "default")}
    return rest | choices[0] if choices else rest
