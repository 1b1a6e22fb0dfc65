"""OpenFlow messages and values that several apps need."""

from __future__ import annotations

from typing import Any

from app_base.pipeline import COOKIE_MASK
from app_base.stage import Stage


def delete_entries(datapath: Any, stage: Stage) -> Any:
    """Deletes all entries of a stage."""
    return _delete(datapath, stage.table, stage.cookie, COOKIE_MASK)


def delete_exactly(datapath: Any, cookie: int, table_id: int) -> Any:
    """Deletes the entries of a table whose whole cookie is this one."""
    return _delete(datapath, table_id, cookie, 0xFFFF_FFFF_FFFF_FFFF)


def _delete(datapath: Any, table_id: int, cookie: int, cookie_mask: int) -> Any:
    ofp = datapath.ofproto
    return datapath.ofproto_parser.OFPFlowMod(
        datapath,
        command=ofp.OFPFC_DELETE,
        table_id=table_id,
        cookie=cookie,
        cookie_mask=cookie_mask,
        out_port=ofp.OFPP_ANY,
        out_group=ofp.OFPG_ANY,
    )


def ask_entries(datapath: Any, cookie: int) -> Any:
    """Asks for the entries of the app with ``cookie``, in all tables. All apps see the reply."""
    ofp, parser = datapath.ofproto, datapath.ofproto_parser
    request = getattr(parser, "OFPFlowDescStatsRequest", parser.OFPFlowStatsRequest)  # 1.5, 1.3
    return request(datapath, 0, ofp.OFPTT_ALL, ofp.OFPP_ANY, ofp.OFPG_ANY, cookie, COOKIE_MASK)


def barrier(datapath: Any) -> Any:
    """Asks for a reply when the switch has processed all earlier messages."""
    return datapath.ofproto_parser.OFPBarrierRequest(datapath)


def port_name(port: Any) -> str:
    """The name of a port, as the switch describes it: up to its first NUL, and fit for a line of a log."""
    name = str(port.name.partition(b"\0")[0].decode(errors="replace"))
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in name)
