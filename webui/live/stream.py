"""``/live?page=ADDRESS``: the server-sent events of a live page."""

from __future__ import annotations

from flask import Blueprint, Response, abort, g, request

from webui.access.guard import guard
from webui.access.security import admission, client, is_local
from webui.live_hub import NoSuchPage, TooManyOfClient, TooManyViewers
from webui.services import services

LONGEST_ADDRESS = 1000
blueprint = Blueprint("stream", __name__)


@blueprint.get("/live")
def live() -> Response:
    address = request.args.get("page", "")
    if not is_local(address) or len(address) > LONGEST_ADDRESS:
        abort(400, "page: give the address of a page of this dashboard, such as /")
    try:
        events = services().hub.watch(address, g.visitor.name or client(), admission())
    except NoSuchPage:
        abort(404, "there is no live page at this address")
    except TooManyOfClient as error:
        guard().refusals.note("stream_limit", client())
        abort(429, f"{error}; close some, or raise [web] most_viewers_per_client")
    except TooManyViewers as error:
        guard().refusals.note("stream_limit", client())
        abort(503, f"{error}; close some, or raise [web] most_viewers")
    return Response(events, mimetype="text/event-stream", headers={"X-Accel-Buffering": "no"})
