"""Byte streams divided into messages, errors, and requests of the agent."""

from __future__ import annotations

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ryu.ofproto import ofproto_v1_5

from openflow_ext.switch.errors import BadFraming
from openflow_ext.switch.openflow import messages as of
from tests.support.openflow.flow_mods import datapath, ofproto, parsed, parser, serialized

ACT_ON = frozenset({of.OFPT_FLOW_MOD, of.OFPT_ERROR})
MESSAGES = st.lists(
    st.tuples(st.integers(0, 30), st.binary(max_size=40), st.integers(0, 0xFFFFFFFF)).map(
        lambda parts: of.HEADER.pack(4, parts[0], 8 + len(parts[1]), parts[2]) + parts[1]
    ),
    max_size=20,
)


def chunks(stream: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted({cut % (len(stream) + 1) for cut in cuts}), len(stream)]
    return [stream[start:end] for start, end in itertools.pairwise(edges)]


@given(MESSAGES, st.lists(st.integers(0, 1000), max_size=10))
def test_bytes_pass_in_order_and_messages_to_act_on_come_alone(
    messages: list[bytes], cuts: list[int]
) -> None:
    framer = of.Framer(ACT_ON)
    pieces = [piece for chunk in chunks(b"".join(messages), cuts) for piece in framer.feed(chunk)]
    assert b"".join(data for _, data in pieces) == b"".join(messages)
    assert [data for act_on, data in pieces if act_on] == [m for m in messages if m[1] in ACT_ON]


def test_contiguous_messages_pass_as_one_run() -> None:
    echo, flow_mod = of.HEADER.pack(4, 2, 8, 1), of.HEADER.pack(4, of.OFPT_FLOW_MOD, 8, 2)
    pieces = list(of.Framer(ACT_ON).feed(echo * 3 + flow_mod + echo * 2))
    assert pieces == [(False, echo * 3), (True, flow_mod), (False, echo * 2)]


@pytest.mark.parametrize("bad", [of.HEADER.pack(4, 2, 7, 1), b"GET / HTTP/1.1\r\n", bytes(8)])
def test_bytes_that_are_not_openflow_are_reported_after_the_messages_before_them(bad: bytes) -> None:
    echo = of.HEADER.pack(4, 2, 8, 1)
    framer = of.Framer(ACT_ON).feed(echo + bad)
    assert next(framer) == (False, echo)
    with pytest.raises(BadFraming, match="not an OpenFlow header"):
        next(framer)


def test_an_error_quotes_the_request_and_its_xid() -> None:
    request = of.HEADER.pack(4, of.OFPT_FLOW_MOD, 100, 0xBEEF) + bytes(92)
    answer = parsed(of.error(request, ofproto.OFPET_BAD_MATCH, of.OFPBMC_BAD_FIELD))
    assert (answer.type, answer.code, answer.xid) == (
        ofproto.OFPET_BAD_MATCH,
        ofproto.OFPBMC_BAD_FIELD,
        0xBEEF,
    )
    assert bytes(answer.data) == request[:64]


def test_constants_have_the_values_of_openflow() -> None:
    kinds = ("OFPBMC_", "OFPBAC_", "OFPBRC_", "OFPET_", "OFPFMFC_", "OFPT_", "OFPFC_", "OFPIT_", "OFPAT_")
    for name in (name for name in dir(of) if name.startswith((*kinds, "OFPCR_"))):
        assert getattr(of, name) == getattr(ofproto, name, getattr(ofproto_v1_5, name, None)), name


def test_a_port_desc_request_is_what_ryu_sends() -> None:
    expected = serialized(parser.OFPPortDescStatsRequest(datapath, 0), xid=77)
    assert of.port_desc_request(of.OFP13, 77) == expected
    assert struct.unpack_from("!H", of.port_desc_request(of.OFP15, 77), 2) == (24,)
