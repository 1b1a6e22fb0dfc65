"""``mn --switch weir --controller weir``: the extended switch for Mininet's own command.

::

    mn --custom mininet_topos/topo.py,mininet_topos/mn_switch.py --topo fattree,4 --switch weir \\
       --controller weir,port=6653

This file stands alone for that: it knows the command line of the agent only. All bridges are stock Open
vSwitch on the userspace datapath; one agent extends them, whose data plane is called ``mn``. Hosts' offloads
are turned off, which that datapath needs.
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

from mininet.log import error, warn
from mininet.node import OVSSwitch, RemoteController

DATAPLANE = "mn"
READY_S = 60.0
STOP_S = 10.0
CONNECT_S = 5.0
OFFLOADS_OFF = "tx off tso off gso off gro off"


class WeirSwitch(OVSSwitch):
    """A bridge that the agent extends as soon as all bridges are there."""

    agent: subprocess.Popen | None = None

    def __init__(self, name: str, **params: object) -> None:
        params.update(datapath="user", protocols="OpenFlow13", failMode="secure", batch=True)
        super().__init__(name, **params)

    def start(self, controllers: list) -> None:
        """Start the bridge; at both ends of its links offloads go off."""
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
        while b'"event": "ready"' not in (said := Path(log.name).read_bytes()):
            if cls.agent.poll() is not None or time.monotonic() > until:
                error(f"the agent is not ready: {said.decode(errors='replace').strip()[-500:]}\n")
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
        """End the agent, which takes its programs off the ports."""
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
    """A controller that runs already; whether it listens is found out by connecting to it.

    Mininet's ``remote`` reads the first bytes of the session as text, and ends on a HELLO whose xid, random
    with Ryu, is none.
    """

    def isListening(self, ip: str, port: int) -> bool:  # noqa: N802 - Mininet's name
        try:
            socket.create_connection((ip, port), CONNECT_S).close()
        except OSError as reason:
            warn(f"no controller at {ip}:{port}: {reason}\n")
            return False
        return True


def _weir() -> str:
    """The command `weir`: of this checkout's environment, else of PATH."""
    ours = Path(_weir.__code__.co_filename).resolve().parents[1] / ".venv" / "bin" / "weir"
    found = str(ours) if ours.exists() else shutil.which("weir")
    if found is None:
        error("the command weir is not found: run `make setup`, or put its folder into PATH\n")
        sys.exit(1)
    return found


switches = {"weir": WeirSwitch}
controllers = {"weir": WeirController}
