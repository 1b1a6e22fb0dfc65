"""Qdiscs of ports: root qdiscs, and the removal of an empty clsact qdisc. XDP programs of ports."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator

from openflow_ext.switch.dataplane.interface import DataPlaneError
from openflow_ext.switch.dataplane.netlink import (
    CLSACT,
    CLSACT_EGRESS,
    CLSACT_INGRESS,
    ROOT,
    Netlink,
    TcObject,
)

_DUMP_FROM_PORTS = 50


class Qdiscs:
    """The qdiscs and XDP programs of ports, each read on demand."""

    def __init__(self) -> None:
        self._netlink = Netlink()

    def close(self) -> None:
        self._netlink.close()

    def root(self, ifindex: int) -> TcObject | None:
        """The root qdisc of an interface; None without one. Raises DataPlaneError."""
        with _as_data_plane_error():
            return self._netlink.qdisc(ifindex)

    def roots(self, ifindexes: Collection[int]) -> dict[int, TcObject]:
        """The root qdiscs of interfaces. One dump costs less than a request for each of _DUMP_FROM_PORTS."""
        if len(ifindexes) < _DUMP_FROM_PORTS:
            found = {ifindex: self.root(ifindex) for ifindex in ifindexes}
            return {ifindex: root for ifindex, root in found.items() if root}
        with _as_data_plane_error():
            return {one.ifindex: one for one in self._netlink.qdiscs() if one.parent == ROOT}

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
        raise DataPlaneError(f"the qdiscs cannot be read: {error}") from error
