"""What the machine must have before the lab can build a network."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from mininet_topos.errors import LabError, Unable
from mininet_topos.machine.commands import run, vsctl

PACKAGE_OF_PROGRAM = {
    "ovs-vsctl": "openvswitch-switch",
    "mnexec": "mininet",
    "tc": "iproute2",
    "ethtool": "ethtool",
    "ifconfig": "net-tools",
}


def require_machine() -> None:
    """Raise Unable, with the remedy, if this machine cannot build a network."""
    if os.geteuid() != 0:
        raise Unable("the lab needs root: run it with sudo")
    for program, package in PACKAGE_OF_PROGRAM.items():
        if shutil.which(program) is None:
            raise Unable(f"{program} is missing: install the package {package}, or run `make setup`")
    if not Path("/sys/kernel/btf/vmlinux").exists():
        raise Unable("this kernel has no BTF (/sys/kernel/btf/vmlinux): it needs CONFIG_DEBUG_INFO_BTF")
    try:
        run("ovs-appctl", "-t", "ovs-vswitchd", "version")
        vsctl("show")
    except LabError as error:
        raise Unable(f"Open vSwitch does not run: run `make setup` ({error})") from error
