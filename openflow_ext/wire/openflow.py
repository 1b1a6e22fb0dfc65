"""The numbers of OpenFlow 1.3 and 1.5 that the extension uses, and the extension's own."""

from __future__ import annotations

from openflow_ext.wire.errors import UnknownType

__all__ = [
    "OFP13",
    "OFP15",
    "OFPAT_EXPERIMENTER",
    "OFPET_EXPERIMENTER",
    "OFPMPF_REPLY_MORE",
    "OFPMP_EXPERIMENTER",
    "OFPP_ANY",
    "OFPT_BUF_ALARM",
    "OFPT_BUF_NORMAL",
    "OFPT_ERROR",
    "OFPT_EXPERIMENTER",
    "OFPT_MULTIPART_REPLY",
    "OFPT_MULTIPART_REQUEST",
    "OFPXMC_EXPERIMENTER",
    "OFPXMT_OFB_TCP_WINDOW",
    "WEIR_EXPERIMENTER_ID",
]

WEIR_EXPERIMENTER_ID = 0x00576569
OFP13 = 0x04
OFP15 = 0x06

OFPT_ERROR = 1
OFPT_EXPERIMENTER = 4
OFPT_MULTIPART_REQUEST = 18
OFPT_MULTIPART_REPLY = 19
OFPET_EXPERIMENTER = 0xFFFF
OFPMP_EXPERIMENTER = 0xFFFF
OFPMPF_REPLY_MORE = 1
OFPAT_EXPERIMENTER = 0xFFFF
OFPXMC_EXPERIMENTER = 0xFFFF
OFPXMT_OFB_TCP_WINDOW = 1
OFPP_ANY = 0xFFFFFFFF

OFPT_BUF_ALARM = 30
OFPT_BUF_NORMAL = 31
"""The message types that SDTCP (section IV.B) assigns in OpenFlow 1.3. OpenFlow 1.5 uses both numbers
for other messages."""


def check_version(version: int) -> None:
    """Raise UnknownType unless ``version`` is that of OpenFlow 1.3 or 1.5."""
    if version not in (OFP13, OFP15):
        raise UnknownType(
            "ofp_header.version", f"{version:#04x}: only OpenFlow 1.3 (0x04) and 1.5 (0x06) are implemented"
        )
