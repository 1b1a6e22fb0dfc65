"""What apps take from the messages of switches."""

from types import SimpleNamespace

import pytest

from app_base.messages import port_name


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"s1-eth3" + bytes(9), "s1-eth3"),
        ("t\u00fcr".encode(), "t\u00fcr"),
        (b"", ""),
        (b"a\0b", "a"),
        (b"a\nERROR b", "a\ufffdERROR b"),
        (b"\x1b[2J", "\ufffd[2J"),
        ("a\u202eb".encode(), "a\ufffdb"),
        (b"a\xff", "a\ufffd"),
    ],
)
def test_a_port_s_name_is_one_line_that_every_database_takes(name, shown):
    """A NUL is refused by PostgreSQL; the others change what a terminal shows."""
    assert port_name(SimpleNamespace(name=name)) == shown
