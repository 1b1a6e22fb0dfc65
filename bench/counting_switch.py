"""Ryu's ``simple_switch_13``, which also counts the PACKET_INs that it has handled."""

from __future__ import annotations

from typing import Any

from ryu.app.simple_switch_13 import SimpleSwitch13
from ryu.controller import ofp_event
from ryu.controller.handler import MAIN_DISPATCHER, set_ev_cls

from bench.tally import Tally


class CountingSwitch(SimpleSwitch13):  # type: ignore[misc]  # Ryu is untyped
    """The learning switch with a tally."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.tally = Tally()
        self.tally.begin()

    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)  # type: ignore[untyped-decorator]  # so is this
    def _packet_in_handler(self, ev: Any) -> None:
        super()._packet_in_handler(ev)
        self.tally.add(1, 0)
