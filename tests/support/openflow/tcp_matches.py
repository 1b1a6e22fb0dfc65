"""A hypothesis strategy for the matches of rules."""

from __future__ import annotations

import ipaddress

from hypothesis import strategies as st

from openflow_ext.switch.dataplane.rules import TcpMatch

NETWORKS = st.one_of(
    st.none(),
    st.builds(
        lambda address, bits: ipaddress.ip_network((int(address), bits), strict=False),
        st.ip_addresses(v=4, network="10.0.0.0/8"),
        st.integers(1, 32),
    ),
)
MAYBE_PORT = st.one_of(st.none(), st.integers(1, 3))
TCP_MATCHES = st.builds(
    lambda flags, **rest: TcpMatch(flags=flags[0] & flags[1], flags_mask=flags[1], **rest),
    src=NETWORKS,
    dst=NETWORKS,
    src_port=MAYBE_PORT,
    dst_port=MAYBE_PORT,
    flags=st.tuples(st.integers(0, 0xFFF), st.integers(0, 0xFFF)),
    in_port=MAYBE_PORT,
)
