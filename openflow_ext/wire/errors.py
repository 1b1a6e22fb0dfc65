"""The exceptions of the codec, and the error codes that a switch sends."""

from __future__ import annotations

import enum
from typing import ClassVar

__all__ = ["BadLength", "BadValue", "ErrorCode", "Truncated", "UnknownType", "WireError"]


class ErrorCode(enum.IntEnum):
    """Why a switch refused an extension message: ``exp_type`` of its OFPET_EXPERIMENTER error."""

    BAD_PORT = 1
    BAD_VALUE = 2
    NO_DATAPLANE = 3
    BAD_MESSAGE = 4
    UNKNOWN_TYPE = 5


class WireError(Exception):
    """Bytes or values that are not a message, action or field of the extension.

    ``field`` names the culprit as ``layout.field``. ``code`` is the error code of a switch's reply.
    """

    code: ClassVar[ErrorCode] = ErrorCode.BAD_MESSAGE

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class Truncated(WireError):
    """The bytes end before the field does."""


class BadLength(WireError):
    """A length field disagrees with the number of bytes, or bytes are left over."""


class BadValue(WireError):
    """The field cannot have this value."""

    code = ErrorCode.BAD_VALUE


class UnknownType(WireError):
    """A version, message, multipart, action or field type that the extension does not define."""

    code = ErrorCode.UNKNOWN_TYPE
