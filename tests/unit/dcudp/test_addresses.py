"""Addresses as a person writes them."""

from __future__ import annotations

import pytest

from dcudp.addresses import Address, resolve
from dcudp.errors import AddressError


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9000", Address("127.0.0.1", 9000)),
        ("[::1]:9000", Address("::1", 9000)),
        ("::1:9000", Address("::1", 9000)),
        ("10.0.0.1:0", Address("10.0.0.1", 0)),
        ("169.254.0.1:9000", Address("169.254.0.1", 9000)),
        ("[fe80::1%lo]:9000", Address("fe80::1%1", 9000)),
        ("[2001:db8::1%1]:9000", Address("2001:db8::1", 9000)),
    ],
)
def test_an_address_has_a_host_and_a_port(text: str, address: Address) -> None:
    assert resolve(text) == address
    assert resolve(str(address)) == address


@pytest.mark.parametrize(
    "text", ["", "127.0.0.1", ":9000", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:x", "h:-1"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(AddressError, match="is not an address and port"):
        resolve(text)


def test_a_link_local_address_needs_its_interface() -> None:
    with pytest.raises(AddressError, match=r"name its interface, as in \[fe80::1%eth0\]:9000"):
        resolve("[fe80::1]:9000")


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(AddressError, match="cannot find the address of 'host"):
        resolve("host.invalid:1")


def test_a_client_of_loopback_is_bound_to_loopback() -> None:
    assert Address("127.0.0.1", 9000).local_bind() == Address("127.0.0.1", 0)
    assert Address("::1", 9000).local_bind() == Address("::1", 0)
    assert Address("192.0.2.1", 9000).local_bind() == Address("0.0.0.0", 0)
    assert Address("2001:db8::1", 9000).local_bind() == Address("::", 0)
    assert Address("fe80::1%1", 9000).local_bind() == Address("::", 0)
