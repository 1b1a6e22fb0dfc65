"""Whatever either side sends, a session answers it or passes it on; it never raises, and does not grow."""

from __future__ import annotations

import logging

from hypothesis import given
from hypothesis import strategies as st

from openflow_ext.switch.openflow import messages as of
from openflow_ext.switch.openflow.session import FROM_CONTROLLER, FROM_SWITCH
from tests.support.fuzzing.proxy import ProxyTarget, Sessions
from tests.support.fuzzing.short import assert_withstands


def test_mangled_messages_never_end_a_session() -> None:
    assert_withstands("proxy", ProxyTarget(), 20_000, accepted=(0.2, 0.9))


@given(st.binary(min_size=0, max_size=200), st.sampled_from(sorted(FROM_CONTROLLER | FROM_SWITCH)))
def test_messages_with_random_bodies_never_end_a_session(body: bytes, of_type: int) -> None:
    sessions = Sessions()
    logging.getLogger("openflow_ext").setLevel(logging.CRITICAL)
    try:
        for version in (4, 5, 6):
            message = of.HEADER.pack(version, of_type, 8 + len(body), 1) + body
            for from_switch in (False, True):
                sessions.feed(message, from_switch)
    finally:
        sessions.plane.destroy()
        logging.getLogger("openflow_ext").setLevel(logging.NOTSET)
