"""The dashboard under the WSGI server waitress: one process, with a thread for each live page."""

from __future__ import annotations

import gc
import os
import socket
from typing import TypeAlias

import waitress
from flask import Flask

from webui.config import WebSettings
from webui.services import services

WORKERS = 16
"""Threads for requests that are not live pages."""


class CannotListen(Exception):
    """The server cannot listen on the address; the message says why, and what to do."""


def yield_processors() -> None:
    """Let this process, and threads that it starts later, run only while no other program needs the CPU.

    The policy is SCHED_IDLE (sched(7)): a controller that wakes gets the CPU at once. With a high nice value
    instead, the controller and its alarms would wait until the end of a time slice.
    """
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def end_live_pages(app: Flask) -> None:
    """End the streams of the live pages: only their threads would run as long as a page is open."""
    services(app).hub.close()


Server: TypeAlias = waitress.server.BaseWSGIServer | waitress.server.MultiSocketServer


def urls_of(server: Server) -> list[str]:
    """Where a server listens: a host name such as localhost may have several addresses."""
    places = (
        server.effective_listen
        if isinstance(server, waitress.server.MultiSocketServer)
        else [(server.effective_host, server.effective_port)]
    )
    return [f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/" for host, port in places]


def make_server(app: Flask, settings: WebSettings) -> Server:
    """A server that listens. ``run`` serves until SystemExit, then gives open requests 5 s to finish.

    Raises CannotListen. The objects that exist now stay until the end, so they are excluded from garbage
    collection, which would delay requests.
    """
    gc.freeze()
    host, port = settings.address
    try:
        return waitress.create_server(
            app,
            host=host,
            port=port,
            threads=settings.most_viewers + WORKERS,
            connection_limit=settings.most_viewers * 2 + 200,
            channel_timeout=60,
            asyncore_use_poll=True,
            ident="weir",
            clear_untrusted_proxy_headers=False,  # webui.access.forwarding decides which are believed
        )
    except (OSError, socket.gaierror, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise CannotListen(
            f"cannot listen on {settings.listen}: {why}; give another address: --listen ADDRESS:PORT"
        ) from error
