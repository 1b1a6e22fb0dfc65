"""The exceptions of the agent.

SwitchError        the agent cannot continue with something; one clear line for the operator
  AgentRuns        another process holds a lock of the agent
  BadFraming       a byte stream that is not OpenFlow; it ends that session
  OvsdbError       the OVSDB server refused a request, or sent an invalid answer
Refused            a controller's request that gets an OpenFlow error; carries its type and code
Declined           a request of the extension that gets an error; carries the whole answer

DataPlaneError and its subclasses are defined in dataplane/interface.py.
"""

from __future__ import annotations


class SwitchError(Exception):
    """The agent cannot do something. The message states what, and what to do about it."""


class AgentRuns(SwitchError):
    """Another process holds the lock of a data plane or of a bridge."""


class BadFraming(SwitchError):
    """A byte stream that is not OpenFlow."""


class OvsdbError(SwitchError):
    """The OVSDB server refused a request, or sent an invalid answer."""


class Refused(Exception):
    """A request that changed nothing and is answered by OFPT_ERROR (``error_type``, ``code``)."""

    def __init__(self, error_type: int, code: int, reason: str) -> None:
        super().__init__(reason)
        self.error_type = error_type
        self.code = code


class Declined(Exception):
    """A request of the extension that was not carried out. ``answer`` is the error message."""

    def __init__(self, answer: bytes, reason: str) -> None:
        super().__init__(reason)
        self.answer = answer
