"""Why the agent refuses something.

SwitchError        anything the agent gives up on; one clear line for the operator
  BadFraming       a byte stream that is no OpenFlow; ends that session
  OvsdbError       the OVSDB server refused, or its answer makes no sense
Refused            a controller's request that gets an OpenFlow error; carries its type and code
Declined           a request of the extension that gets an error; carries the whole answer
"""

from __future__ import annotations


class SwitchError(Exception):
    """Something that the agent cannot do; the message says what and what to do about it."""


class BadFraming(SwitchError):
    """A byte stream that is no OpenFlow."""


class OvsdbError(SwitchError):
    """The OVSDB server refused a request, or answered nonsense."""


class Refused(Exception):
    """A request that is answered by OFPT_ERROR (``error_type``, ``code``) and has changed nothing."""

    def __init__(self, error_type: int, code: int, reason: str) -> None:
        super().__init__(reason)
        self.error_type = error_type
        self.code = code


class Declined(Exception):
    """A request of the extension that was not carried out; ``answer`` is the error that goes back."""

    def __init__(self, answer: bytes, reason: str) -> None:
        super().__init__(reason)
        self.answer = answer
