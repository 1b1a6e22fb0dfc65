"""``mn --switch weir --controller weir``: the extended switch for Mininet's own command.

::

    mn --custom mininet_topos/topo.py,mininet_topos/mn_switch.py --topo fattree,4 --switch weir \\
       --controller weir,port=6653

``mn`` executes this file alone, so it imports nothing of the project and uses the agent's command line. All
bridges are stock Open vSwitch on the userspace datapath. One agent extends them; its data plane is called
``mn``. The hosts' offloads are off, because that datapath needs real checksums and segments.
"""

from __future__ import annotations

import atexit
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from mininet.log import error, warn
from mininet.node import OVSSwitch, RemoteController

DATAPLANE = "mn"
READY_S = 60.0
STOP_S = 10.0
CONNECT_S = 5.0
OFFLOADS_OFF = "tx off tso off gso off gro off"


class WeirSwitch(OVSSwitch):
    """A bridge that the agent extends as soon as all bridges exist."""

    agent: subprocess.Popen[bytes] | None = None

    def __init__(self, name: str, **params: object) -> None:
        params.update(datapath="user", protocols="OpenFlow13", failMode="secure", batch=True)
        super().__init__(name, **params)

    def start(self, controllers: list[Any]) -> None:
        """Start the bridge, and turn offloads off at both ends of its links."""
        super().start(controllers)
        for intf in self.intfList():
            for end in (intf.link.intf1, intf.link.intf2) if intf.link else ():
                end.node.cmd(f"ethtool -K {end} {OFFLOADS_OFF}")

    @classmethod
    def batchStartup(  # noqa: N802 - Mininet's name
        cls, switches: tuple[WeirSwitch, ...], **options: object
    ) -> tuple[WeirSwitch, ...]:
        """Start all bridges, then their agent."""
        super().batchStartup(switches, **options)
        bridges = [word for switch in switches for word in ("--bridge", switch.name)]
        argv = [_weir(), "switch", "--name", DATAPLANE, "--json", *bridges]
        log = tempfile.NamedTemporaryFile(prefix="weir-switch-", suffix=".log")  # noqa: SIM115 - for its life
        cls.agent = subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True)
        atexit.register(cls.stop_agent)
        until = time.monotonic() + READY_S
        while b'"event": "ready"' not in (output := Path(log.name).read_bytes()):
            if cls.agent.poll() is not None or time.monotonic() > until:
                error(f"the agent is not ready: {output.decode(errors='replace').strip()[-500:]}\n")
                sys.exit(1)
            time.sleep(0.05)
        return switches

    @classmethod
    def batchShutdown(  # noqa: N802 - Mininet's name
        cls, switches: tuple[WeirSwitch, ...], **options: object
    ) -> tuple[WeirSwitch, ...]:
        """Stop the agent, then all bridges."""
        cls.stop_agent()
        stopped: tuple[WeirSwitch, ...] = super().batchShutdown(switches, **options)
        return stopped

    @classmethod
    def stop_agent(cls) -> None:
        """End the agent, which removes its programs from the ports."""
        if cls.agent is None:
            return
        cls.agent.terminate()
        try:
            cls.agent.wait(STOP_S)
        except subprocess.TimeoutExpired:
            cls.agent.kill()
            cls.agent.wait()
        cls.agent = None


class WeirController(RemoteController):
    """A controller that already runs. It listens if a connection to it succeeds.

    Mininet's own ``remote`` decodes the first bytes of the session as text, and fails if Ryu's HELLO, whose
    xid is random, is not valid text.
    """

    def isListening(self, ip: str, port: int) -> bool:  # noqa: N802 - Mininet's name
        try:
            socket.create_connection((ip, port), CONNECT_S).close()
        except OSError as reason:
            warn(f"no controller at {ip}:{port}: {reason}\n")
            return False
        return True


def _weir() -> str:
    """Return the command `weir` of this checkout's environment, or else of PATH."""
    ours = Path(_weir.__code__.co_filename).resolve().parents[1] / ".venv" / "bin" / "weir"
    found = str(ours) if ours.exists() else shutil.which("weir")
    if found is None:
        error("the command weir is not found: run `make setup`, or put its folder into PATH\n")
        sys.exit(1)
    return found


switches = {"weir": WeirSwitch}
controllers = {"weir": WeirController}
