"""An endpoint of the API: its parameters and answer are models, which the OpenAPI document is made of too."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Any

from flask import Blueprint, Response, abort, request
from pydantic import BaseModel

from webui.args import Args, Nothing, parse
from webui.parts import parts
from webui.views import View

blueprint = Blueprint("api", __name__, url_prefix="/api/v1")
MISSING = "there is none in the database; it may have been pruned"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What can be asked at ``rule``. ``answer``: its model; ``is_list``: a plain array of them."""

    rule: str
    name: str
    summary: str
    args: type[Args]
    answer: type[BaseModel]
    is_list: bool = False
    method: str = "get"
    body: type[BaseModel] | None = None


ENDPOINTS: list[Endpoint] = []


def get(
    rule: str, answer: type[View], args: type[Args] = Nothing, is_list: bool = False, shared: bool = False
) -> Callable[[Any], Any]:
    """GET at ``rule``: the function gets the session, the parameters, the time, and what the rule names.

    ``shared``: one answer serves all who ask the same within a poll of the live pages.
    """

    def register(load: Any) -> Any:
        summary = (load.__doc__ or "").splitlines()[0]
        ENDPOINTS.append(Endpoint(rule, load.__name__, summary, args, answer, is_list))

        def make(**named: Any) -> bytes | None:
            asked = parse(args, request.args)
            with parts().database.reading() as session:
                found = load(session, asked, time.time_ns(), **named)
            if found is None:
                return None
            return _list_json(found) if is_list else found.model_dump_json().encode()

        @lru_cache(maxsize=128)
        def make_once(_of: int, _asked: str, _poll: int) -> bytes | None:
            return make(**(request.view_args or {}))

        def view(**named: Any) -> Response:
            if shared:
                with _turn(request.full_path):
                    poll = int(time.monotonic() / parts().settings.poll_s)
                    body = make_once(id(parts()), request.full_path, poll)
            else:
                body = make(**named)
            if body is None:
                abort(404, MISSING)
            return Response(body, mimetype="application/json")

        blueprint.add_url_rule(rule, load.__name__, view)
        return load

    return register


@lru_cache(maxsize=128)
def _turn(_asked: str) -> Lock:
    """Who asks the same asks one by one: a change makes all viewers ask at once, and the first one's answer
    serves the others.
    """
    return Lock()


def _list_json(found: list[View]) -> bytes:
    return b"[" + b",".join(one.model_dump_json().encode() for one in found) + b"]"
