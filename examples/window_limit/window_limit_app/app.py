"""The app: sends its entries to every switch that connects."""

from __future__ import annotations

from typing import Any

from app_base.app import ControllerApp, Refusal
from app_base.messages import delete_entries
from window_limit_app import messages
from window_limit_app.config import WindowLimitSettings
from window_limit_app.stage import STAGE


class WindowLimitApp(ControllerApp[WindowLimitSettings]):
    """Limits windows on every switch. The base class loads the settings and serves the metrics."""

    DECLARATION = STAGE

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sent_xids: set[tuple[int, int]] = set()

    def switch_connected(self, datapath: Any) -> None:
        next_table = self.pipeline.next_table(STAGE.table)
        datapath.send_msg(delete_entries(datapath, STAGE))  # an earlier controller's limits may differ
        for limit in self.settings.limits:
            flow_mod = messages.limit(datapath, limit, next_table)
            datapath.send_msg(flow_mod)
            self._sent_xids.add((datapath.id, flow_mod.xid))
            self.metrics.count("entries")
        self.logger.info("switch %016x: %d limits", datapath.id, len(self.settings.limits))

    def switch_disconnected(self, dpid: int) -> None:
        self._sent_xids = {sent for sent in self._sent_xids if sent[0] != dpid}

    def message_refused(self, refusal: Refusal) -> None:
        if (refusal.dpid, refusal.xid) in self._sent_xids:
            self.metrics.count("refused")
            self.logger.warning("switch %016x refuses a limit: %s", refusal.dpid, refusal)
