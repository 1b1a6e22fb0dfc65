"""Requests that the dashboard refused: counted by reason, and logged at a bounded rate."""

from __future__ import annotations

import logging
import time
from collections import Counter
from threading import Lock
from typing import Literal

Reason = Literal["wrong_password", "login_limit", "login_busy", "unknown_token", "stream_limit"]
REASONS: tuple[Reason, ...] = (
    "wrong_password", "login_limit", "login_busy", "unknown_token", "stream_limit",
)  # fmt: skip
LOG_EVERY_S = 10.0
LOG = logging.getLogger(__name__)


class Refusals:
    """The number of refused requests for each reason."""

    def __init__(self) -> None:
        self._counts: Counter[Reason] = Counter()
        self._logged: dict[Reason, tuple[float, int]] = {}
        self._lock = Lock()

    def note(self, reason: Reason, client: str) -> None:
        """Count a refusal. For each reason one line in ``LOG_EVERY_S`` is logged."""
        now_s = time.monotonic()
        with self._lock:
            self._counts[reason] += 1
            count = self._counts[reason]
            at_s, before = self._logged.get(reason, (0.0, 0))
            if before and now_s < at_s + LOG_EVERY_S:
                return
            self._logged[reason] = now_s, count
        LOG.warning("refused %s: %s from %s", reason.replace("_", " "), f"{count - before} more", client)

    @property
    def counts(self) -> dict[Reason, int]:
        with self._lock:
            return {reason: self._counts[reason] for reason in REASONS}
