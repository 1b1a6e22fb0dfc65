"""An app that does nothing. With it, a controller serves switches with the extension installed."""

from __future__ import annotations

from typing import Any

from openflow_ext import registry
from openflow_ext.engine import MAIN_DISPATCHER, App, ofp_event, set_ev_cls

registry.install()


class Quiet(App):
    """Its handler makes the engine load its controller."""

    OFP_VERSIONS = (4, 6)

    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def packet_in(self, event: Any) -> None:
        """Leave the packet where it is."""
