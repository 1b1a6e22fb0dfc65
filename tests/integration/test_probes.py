"""The probes of `weir doctor` that need root."""

from __future__ import annotations

import socket

import pytest

from tests.support.agent.network_apart import network_apart
from weir import probes

pytestmark = pytest.mark.beside_others


def test_a_private_network_holds_only_its_own_interfaces_and_ends_with_the_probe() -> None:
    seen: list[list[str]] = []

    def look() -> None:
        probes._make_veth()
        seen.append(sorted(name for _, name in socket.if_nameindex()))

    with network_apart():  # elsewhere the interfaces of other tests come and go
        outside = sorted(name for _, name in socket.if_nameindex())
        probes.in_private_network(look)
        assert seen == [["lo", "weir0", "weir1"]]
        assert sorted(name for _, name in socket.if_nameindex()) == outside
