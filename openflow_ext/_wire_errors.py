"""OpenFlow's numbers and the errors that wire.py raises. Import them from ``openflow_ext.wire``."""

from __future__ import annotations

import enum
from typing import ClassVar

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
"""The paper's message types of 1.3 (SDTCP, section IV.B); 1.5 has given both numbers away."""


class ErrorCode(enum.IntEnum):
    """Why a switch refused an extension message (``exp_type`` of the OFPET_EXPERIMENTER error)."""

    BAD_PORT = 1
    BAD_VALUE = 2
    NO_DATAPLANE = 3
    BAD_MESSAGE = 4
    UNKNOWN_TYPE = 5


class WireError(Exception):
    """Bytes or values that are no message of the extension. ``code`` is what a switch answers."""

    code: ClassVar[ErrorCode] = ErrorCode.BAD_MESSAGE

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class Truncated(WireError):
    """The bytes end before the field does."""


class BadLength(WireError):
    """A length field disagrees with the bytes, or bytes are left over."""


class BadValue(WireError):
    """A value that the field cannot have."""

    code = ErrorCode.BAD_VALUE


class UnknownType(WireError):
    """A version, message, multipart, action or field type that the extension does not have."""

    code = ErrorCode.UNKNOWN_TYPE


def check_version(version: int) -> None:
    if version not in (OFP13, OFP15):
        raise UnknownType(
            "ofp_header.version", f"{version:#04x}: only OpenFlow 1.3 (0x04) and 1.5 (0x06) are implemented"
        )
