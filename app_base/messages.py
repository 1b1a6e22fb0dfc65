"""OpenFlow messages and values that several apps need."""

from __future__ import annotations

from typing import Any

from app_base.pipeline import COOKIE_MASK
from app_base.stage import Stage


def delete_entries(datapath: Any, stage: Stage) -> Any:
    """Deletes all entries of a stage."""
    ofp = datapath.ofproto
    return datapath.ofproto_parser.OFPFlowMod(
        datapath,
        command=ofp.OFPFC_DELETE,
        table_id=stage.table,
        cookie=stage.cookie,
        cookie_mask=COOKIE_MASK,
        out_port=ofp.OFPP_ANY,
        out_group=ofp.OFPG_ANY,
    )


def barrier(datapath: Any) -> Any:
    """Asks for a reply when the switch has processed all earlier messages."""
    return datapath.ofproto_parser.OFPBarrierRequest(datapath)


def port_name(port: Any) -> str:
    """The name of a port, as the switch describes it."""
    return str(port.name.decode(errors="replace").rstrip("\0"))
