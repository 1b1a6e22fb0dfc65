"""Which interfaces a notification of the kernel names."""

from __future__ import annotations

import contextlib

from openflow_ext.switch.dataplane import netlink
from openflow_ext.switch.dataplane.netlink import HEADER, LINK, TC, Netlink
from openflow_ext.switch.ovs.link_changes import LinkChanges, changed_interfaces


def notification(kind: int, body: bytes, sender: int = 0) -> bytes:
    return HEADER.pack(HEADER.size + len(body), kind, 0, 0, sender) + body


def test_links_qdiscs_classes_and_filters_count_and_actions_do_not() -> None:
    link, tc = LINK.pack(0, 1, 7, 0, 0), TC.pack(0, 8, 0, 0, 0)
    assert changed_interfaces(notification(netlink.NEW_LINK, link)) == {7}
    data = notification(netlink.NEW_QDISC, tc) + notification(netlink.DEL_LINK, link)
    assert changed_interfaces(data + notification(netlink.NEW_CLASS, TC.pack(0, 9, 0, 0, 0))) == {7, 8, 9}
    assert changed_interfaces(notification(netlink.DEL_FILTER, tc)) == {8}
    action_message = 48
    assert changed_interfaces(notification(action_message, tc)) == set()
    assert changed_interfaces(notification(netlink.NEW_LINK, b"short")) == set()


def test_requests_of_this_process_are_no_changes() -> None:
    """Before Linux 6.9 the answer to a request for a qdisc is a notification to all."""
    with contextlib.closing(Netlink()) as own:
        data = notification(netlink.NEW_QDISC, TC.pack(0, 8, 0, 0, 0), sender=own._port_id)
        assert changed_interfaces(data) == set()
    assert changed_interfaces(data) == {8}


def test_without_changes_nothing_is_read() -> None:
    with contextlib.closing(LinkChanges()) as changes:
        changes.read()
        assert changes.fd > 0
