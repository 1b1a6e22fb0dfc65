"""Which hosts are this machine only."""

from __future__ import annotations

import pytest

from weir_base.addresses import is_loopback


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_a_loopback_address_is_this_machine_only(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "localhost.example", "", "127.0.0.1:80"])
def test_any_other_host_is_not(host: str) -> None:
    assert not is_loopback(host)
