"""A network namespace of a test's own, so that the switches of several tests run at the same time.

All userspace datapaths of a namespace want the same interface, ``ovs-netdev``.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Iterator

from pyroute2 import netns

from tests.support.lab.delay_bench import CLONE_NEWNET, LIBC

_MOUNT_SYSFS = """
mount -t sysfs sysfs /mnt
for part in class/net devices/virtual/net; do mount --bind /mnt/$part /sys/$part; done
exec "$@"
"""
OWN_SYSFS = ("unshare", "--mount", "--propagation", "private", "sh", "-ec", _MOUNT_SYSFS, "sh")
"""A command that the agent's command line is given to, so that it finds the speeds of its ports.

sysfs shows the interfaces of the network namespace in which it was mounted. All pins stay visible.
"""


@contextlib.contextmanager
def network_apart() -> Iterator[None]:
    """Put this thread, and every program that it starts, into a new network namespace. Raises OSError."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        if LIBC.unshare(CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "no network namespace")
        try:
            subprocess.run(("ip", "link", "set", "lo", "up"), check=True)
            yield
        finally:
            netns.setns(home)
    finally:
        os.close(home)
