"""The dashboard under waitress, a production server: one process, a thread for each live page."""

from __future__ import annotations

import gc
import os
import socket

import waitress
from flask import Flask

from webui.config import WebSettings
from webui.parts import KEY

WORKERS = 16
"""Threads for what is not a live page."""


class CannotListen(Exception):
    """The address cannot be listened on; the message says why and what to do."""


def yield_processors() -> None:
    """Let this process, and threads that it begins from now on, run while nobody else wants a processor.

    SCHED_IDLE (sched(7)): a controller that wakes gets the processor at once. For a process of a high nice
    value it would wait until the end of a slice, and its alarms with it.
    """
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def end_live_pages(app: Flask) -> None:
    """Their threads answer for as long as a page is open; nothing else is waited for without end."""
    app.extensions[KEY].hub.close()


def make_server(app: Flask, settings: WebSettings) -> waitress.server.BaseWSGIServer:
    """A server that listens; ``run`` serves until SystemExit, then gives what is being answered 5 s.

    Raises CannotListen.

    What the process has loaded until now stays, so Python need not look through it for garbage any more: that
    took 70 ms out of a request now and then.
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
        )
    except (OSError, socket.gaierror, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise CannotListen(
            f"cannot listen on {settings.listen}: {why}; give another address: --listen ADDR:PORT"
        ) from error
