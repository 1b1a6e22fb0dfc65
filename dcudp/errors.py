"""The errors of DCUDP.

DcudpError
  AddressError      an address cannot be read or resolved
  ConnectionEnded   the connection is over
    ConnectionLost  it ended with an error
  TransferFailed    a file did not arrive
"""

from __future__ import annotations


class DcudpError(Exception):
    """The base of all errors of this package. The message names the problem and the next step."""


class AddressError(DcudpError):
    """An address cannot be read or resolved."""


class ConnectionEnded(DcudpError):
    """The connection is over, as both ends wished, and all data has arrived."""


class ConnectionLost(ConnectionEnded):
    """The connection ended with an error: a failed handshake, or a peer that vanished, aborted or closed.

    If the peer did not confirm all data, the message names the number of bytes.
    """


class TransferFailed(DcudpError):
    """A file did not arrive. Nothing has its final name; a partial file can be resumed."""
