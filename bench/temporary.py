"""A temporary folder that is removed even if somebody ends the benchmark."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mininet_topos.cli.terminal import Terminated, signals_unwind


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder that ends with this context, also if SIGTERM or SIGHUP ends the program.

    For the main thread.
    """
    try:
        with signals_unwind(), tempfile.TemporaryDirectory() as name:
            yield Path(name)
    except Terminated as signalled:
        sys.exit(128 + signalled.args[0])
