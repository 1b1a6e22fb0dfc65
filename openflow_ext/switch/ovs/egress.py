"""The rate and the queue size of a port: from its HTB or TBF root qdisc, else from its link's speed."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from openflow_ext.switch.dataplane.interface import NoShare
from openflow_ext.switch.dataplane.netlink import ROOT, Netlink, TcObject, attributes
from openflow_ext.switch.errors import SwitchError

_OVERFLOWN = 0xFFFFFFFF
"""The 32-bit rate of a qdisc or class whose rate exceeds 34 Gbit/s. A 64-bit attribute then holds it."""
_SYSFS = Path("/sys/class/net")
_FRAME_BYTES = 1514
"""The bytes counted for each packet of a queue that is limited in packets."""
DEFAULT_RATE_BPS = 10_000_000_000
"""The rate of a port whose qdisc and link state none. Open vSwitch reports this rate for a veth too."""
_DUMP_FROM_PORTS = 50
"""From this number of ports on, one dump of all qdiscs costs less than a request for each port."""

_U32 = struct.Struct("=I")
_U64 = struct.Struct("=Q")
_HTB_PARMS, _HTB_INIT, _HTB_RATE64 = 1, 2, 6
_TBF_PARMS, _TBF_RATE64 = 1, 4
_RATE_AT = 8
"""Where a tc_ratespec, with which tc_htb_opt and tc_tbf_qopt begin, has its rate in bytes per second."""
_TBF_LIMIT_AT = 24
_HTB_DEFAULT_AT = 8
"""Where struct tc_htb_glob has the minor number of the default class."""


@dataclass(frozen=True, slots=True)
class Egress:
    """A port's rate in bit/s, its queue size in bytes (0: unknown), and why it can set no fair share."""

    rate_bps: int = DEFAULT_RATE_BPS
    buffer_bytes: int = 0
    lacks: NoShare = NoShare.NONE


FindQdisc = Callable[[int, int], TcObject | None]
"""The qdisc of an interface below a parent."""


def read_egresses(netlink: Netlink, ports: Mapping[int, str]) -> dict[int, Egress]:
    """The egress of each port (ifindex -> name). Raises SwitchError."""
    dump = _Dump(netlink)
    find = dump.find if len(ports) >= _DUMP_FROM_PORTS else netlink.qdisc
    try:
        return {ifindex: _egress(netlink, find, dump, ifindex, name) for ifindex, name in ports.items()}
    except OSError as error:
        raise SwitchError(f"the qdiscs of the ports cannot be read: {error}") from error


class _Dump:
    """One dump of all qdiscs, taken when it is needed first."""

    def __init__(self, netlink: Netlink) -> None:
        self._netlink = netlink
        self._found: dict[tuple[int, int], TcObject] | None = None

    def find(self, ifindex: int, parent: int) -> TcObject | None:
        """As ``Netlink.qdisc``. Raises OSError."""
        if self._found is None:
            self._found = {(one.ifindex, one.parent): one for one in self._netlink.qdiscs()}
        return self._found.get((ifindex, parent))


def _egress(netlink: Netlink, find: FindQdisc, dump: _Dump, ifindex: int, name: str) -> Egress:
    root = find(ifindex, ROOT)
    classes = netlink.classes(ifindex) if root and root.kind == "htb" else []
    rate_bps = (shaped_rate_bps(root, classes) if root else 0) or _link_speed_bps(name)
    lacks = NoShare.NONE if rate_bps else NoShare.CAPACITY
    if root is None:
        return Egress(rate_bps or DEFAULT_RATE_BPS, 0, lacks)
    if root.kind == "noqueue":
        lacks |= NoShare.QUEUE
    return Egress(rate_bps or DEFAULT_RATE_BPS, buffer_bytes(root, _leaf(find, dump, root)), lacks)


def _leaf(find: FindQdisc, dump: _Dump, root: TcObject) -> TcObject | None:
    """The qdisc of HTB's default class. Only a dump has the FIFO of a class to which nobody gave a qdisc."""
    default = _htb_default(root) if root.kind == "htb" else 0
    if not default:
        return None
    of_class = root.ifindex, root.handle | default
    return find(*of_class) or dump.find(*of_class)


def _link_speed_bps(name: str) -> int:
    """The speed that the driver reports; 0 if it reports none. The 10 Mbit/s of every tap are ignored."""
    device = _SYSFS / name
    try:
        if (device / "tun_flags").exists():
            return 0
        return max(0, int((device / "speed").read_text())) * 1_000_000
    except (OSError, ValueError):
        return 0


def shaped_rate_bps(root: TcObject, classes: Collection[TcObject]) -> int:
    """The rate that a root qdisc sets: that of TBF, or of HTB's ``classes``; 0 if it sets none."""
    match root.kind:
        case "tbf":
            return _rate_bps(root.options, _TBF_PARMS, _TBF_RATE64)
        case "htb":
            return htb_rate_bps(classes, root.handle, _htb_default(root))
    return 0


def htb_rate_bps(classes: Collection[TcObject], qdisc_handle: int, default_minor: int) -> int:
    """The rate of the root class above the default class. 0 if unclassified packets are not shaped."""
    by_handle = {one.handle: one for one in classes}
    found = by_handle.get(qdisc_handle | default_minor)
    while found is not None and found.parent in by_handle:
        found = by_handle[found.parent]
    return _rate_bps(found.options, _HTB_PARMS, _HTB_RATE64) if found else 0


def _htb_default(root: TcObject) -> int:
    """The minor number of the class of packets that no filter classifies; 0: they are not shaped."""
    return _u32(attributes(root.options).get(_HTB_INIT, b""), _HTB_DEFAULT_AT)


def buffer_bytes(root: TcObject, leaf: TcObject | None) -> int:
    """The size in bytes of a port's queue: TBF's limit, or that of the FIFO.

    HTB has the FIFO of its default class, the ``leaf``. 0 for all other qdiscs: one that manages its queue,
    such as fq_codel, has no single limit in bytes.
    """
    if root.kind == "tbf":
        return _u32(attributes(root.options).get(_TBF_PARMS, b""), _TBF_LIMIT_AT)
    fifo = leaf if root.kind == "htb" else root
    if fifo is None or fifo.kind not in ("pfifo", "bfifo"):
        return 0
    return _u32(fifo.options, 0) * (_FRAME_BYTES if fifo.kind == "pfifo" else 1)


def _rate_bps(options: bytes, parameters: int, rate64: int) -> int:
    attrs = attributes(options)
    if len(held := attrs.get(rate64, b"")) == _U64.size:
        return int(_U64.unpack(held)[0]) * 8
    rate = _u32(attrs.get(parameters, b""), _RATE_AT)
    return 0 if rate == _OVERFLOWN else rate * 8


def _u32(data: bytes, at: int) -> int:
    """A number of a C struct; 0 if the struct is too short."""
    return int(_U32.unpack_from(data, at)[0]) if len(data) >= at + _U32.size else 0
