"""Schemes in which receiving hosts choose windows: their programs at the receivers' interfaces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from mininet_topos.experiments.schemes import Scheme
from mininet_topos.machine.commands import command, run
from mininet_topos.machine.signals import undisturbed
from mininet_topos.network.lab_network import Network
from mininet_topos.network.nodes import LabHost, inside


@contextmanager
def choosing_windows(scheme: Scheme, net: Network, others: Sequence[str] = ()) -> Iterator[None]:
    """Attach the scheme's program at the root, the sinks and `others` for this context. Raises LabError.

    If the lab is killed, the program is removed with the hosts' interfaces.
    """
    if not scheme.receiver:
        yield
        return
    weir = command("weir")
    names = {net.root.name, *(sink.name for sink in net.sinks), *others}
    with ExitStack() as attached:
        for host in (one for one in net.hosts if one.name in names):
            words = (weir, "transports", scheme.receiver)
            ifname = host.defaultIntf().name
            attached.callback(_undisturbed_run, *inside(host, *words, "detach", ifname))
            run(*inside(host, *words, "attach", ifname, "--rate-mbps", str(rate_mbps(net, host))))
        yield


def rate_mbps(net: Network, host: LabHost) -> float:
    """Return the rate of the port that leads to a host; of the bottleneck, if that port has no limit."""
    for port, shape in net.layout.shapes.items():
        if port.towards == host.name:
            return shape.rate_mbps
    return net.shapes[net.bottleneck_ifname].rate_mbps


def _undisturbed_run(*argv: str) -> None:
    with undisturbed():
        run(*argv)
