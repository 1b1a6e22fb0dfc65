"""Qdiscs of ports: their drops, and the removal of an empty clsact qdisc. XDP programs of ports."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator

from openflow_ext.switch.dataplane.interface import DataPlaneError
from openflow_ext.switch.dataplane.netlink import CLSACT, CLSACT_EGRESS, CLSACT_INGRESS, ROOT, Netlink

_DUMP_FROM_PORTS = 50


class Qdiscs:
    """The qdiscs and XDP programs of ports, each read on demand."""

    def __init__(self) -> None:
        self._netlink = Netlink()

    def close(self) -> None:
        self._netlink.close()

    def drops(self, ifindex: int) -> int:
        """The packets that an interface's root qdisc has dropped since it was created; 0 without a qdisc.

        Raises DataPlaneError.
        """
        with _as_data_plane_error():
            root = self._netlink.qdisc(ifindex)
        return root.drops if root else 0

    def drops_of(self, ifindexes: Collection[int]) -> dict[int, int]:
        """The same of many interfaces. One dump costs less than a request for each of _DUMP_FROM_PORTS."""
        if len(ifindexes) < _DUMP_FROM_PORTS:
            return {ifindex: self.drops(ifindex) for ifindex in ifindexes}
        with _as_data_plane_error():
            return {one.ifindex: one.drops for one in self._netlink.qdiscs() if one.parent == ROOT}

    def xdp(self, ifindex: int) -> dict[int, int]:
        """The XDP programs on an interface: mode -> id. Raises OSError (ENODEV)."""
        return self._netlink.xdp(ifindex)

    def remove_empty_clsact(self, ifindex: int) -> None:
        """Remove an interface's clsact qdisc if no filter is attached to it. The interface may be gone."""
        with contextlib.suppress(OSError):
            clsact = self._netlink.qdisc(ifindex, CLSACT)
            if clsact is None or clsact.kind != "clsact":
                return
            if not any(self._netlink.has_filters(ifindex, hook) for hook in (CLSACT_INGRESS, CLSACT_EGRESS)):
                self._netlink.remove_qdisc(ifindex, clsact.handle, CLSACT)


@contextlib.contextmanager
def _as_data_plane_error() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataPlaneError(f"the drops of the qdiscs cannot be read: {error}") from error
