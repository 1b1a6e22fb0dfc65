"""Repairs os-ken for its default, native threads."""

from __future__ import annotations

from typing import Any

from openflow_ext import engine


class TaskExit(Exception):
    """The hub's name for the end of a thread that was killed. Nothing can kill a native thread."""


def has_native_threads(hub: Any) -> bool:
    """Whether the threads of an engine's hub are threads of the operating system. It cannot kill these."""
    return getattr(hub, "HUB_TYPE", "") == "native"


def repair(name: str) -> None:
    """Let apps of the engine ``name`` ("ryu" or "os_ken") go on after an exception in a handler. Idempotent.

    The hub of os-ken defines ``TaskExit``, at which an app's thread ends silently, as Exception. Then the
    app's queue fills, and the threads that read from switches wait for room in it for ever.
    """
    hub = engine.load("lib.hub", name)
    if has_native_threads(hub):
        hub.TaskExit = TaskExit
