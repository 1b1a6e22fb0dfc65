"""An app that does nothing, in a controller that ends TLS handshakes early."""

from __future__ import annotations

from openflow_ext.sessions import guard
from tests.support.controllers import quiet_app

HANDSHAKE_S = 2.0
guard._TLS_HANDSHAKE_S = HANDSHAKE_S


class Hasty(quiet_app.Quiet):
    """An engine runs the classes of the module that it was given only."""
