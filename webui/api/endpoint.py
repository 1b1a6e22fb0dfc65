"""An endpoint of the API. Its parameters and answer are models, from which OpenAPI is generated too."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Any

from flask import Blueprint, Response, abort, request
from pydantic import BaseModel

from webui.parameters import NoParameters, Parameters, parse
from webui.services import services
from webui.views import View

blueprint = Blueprint("api", __name__, url_prefix="/api/v1")
MISSING = "the database does not hold it; it may have been pruned"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The operation at the address ``rule``. ``answer``: its model; ``is_list``: the answer is an array."""

    rule: str
    name: str
    summary: str
    args: type[Parameters]
    answer: type[BaseModel]
    is_list: bool = False
    method: str = "get"
    body: type[BaseModel] | None = None


ENDPOINTS: list[Endpoint] = []


def get(
    rule: str,
    answer: type[View],
    args: type[Parameters] = NoParameters,
    is_list: bool = False,
    shared: bool = False,
) -> Callable[[Any], Any]:
    """Register the decorated function as GET at the address ``rule``.

    It is called with a database session, the parameters, the time in ns, and the parts of the address. Its
    docstring is the summary. ``shared``: equal requests within one poll of the live pages get one answer.
    """

    def register(load: Any) -> Any:
        summary = (load.__doc__ or "").splitlines()[0]
        ENDPOINTS.append(Endpoint(rule, load.__name__, summary, args, answer, is_list))

        def make_body(**named: Any) -> bytes | None:
            asked = parse(args, request.args)
            database = services().database
            with database.reading() as session:
                found = load(session, asked, database.now_ns(session), **named)
            if found is None:
                return None
            return _list_json(found) if is_list else found.model_dump_json().encode()

        @lru_cache(maxsize=128)
        def shared_body(_of: int, _asked: str, _poll: int) -> bytes | None:
            return make_body(**(request.view_args or {}))

        def view(**named: Any) -> Response:
            if shared:
                with _lock_of(request.full_path):
                    body = shared_body(id(services()), request.full_path, current_poll())
            else:
                body = make_body(**named)
            if body is None:
                abort(404, MISSING)
            return Response(body, mimetype="application/json")

        blueprint.add_url_rule(rule, load.__name__, view)
        return load

    return register


def current_poll() -> int:
    """The number of the live pages' poll interval that runs now. Equal requests in it get one answer."""
    return int(time.monotonic() / services().settings.poll_s)


@lru_cache(maxsize=128)
def _lock_of(_asked: str) -> Lock:
    """A lock for equal requests, so that the first computes the answer and the others wait for it.

    A change makes all viewers of a page send the same request at once.
    """
    return Lock()


def _list_json(found: list[View]) -> bytes:
    return b"[" + b",".join(one.model_dump_json().encode() for one in found) + b"]"
