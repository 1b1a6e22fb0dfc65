"""Merged changes of a row have the same effect as the single changes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine, select
from sqlalchemy.pool import StaticPool

from flowdb.flow import FiveTuple, Flow, Hop
from flowdb.models import Base, FlowRow, HopRow, HostRow, SwitchRow
from flowdb.writing.changes import in_write_order, make_change, write
from flowdb.writing.flow_changes import FlowOpened

HERE = {"dpid": 1, "port_no": 1, "last_seen_ns": 1}
ADDRESSES = st.fixed_dictionaries({}, optional={"ipv4": st.integers(0, 9).map(str), "ipv6": st.none()})
STEPS = st.lists(
    st.tuples(st.sampled_from(["merge", "update", "delete"]), ADDRESSES, st.booleans()), max_size=8
)


@pytest.fixture(scope="module")
def connection():
    engine = create_engine("sqlite://", poolclass=StaticPool)
    Base.metadata.create_all(engine)
    with engine.connect() as connection:
        yield connection


@settings(max_examples=200)
@given(STEPS)
def test_merged_changes_equal_single_changes(connection, steps):
    first = {"mac": "aa", **HERE}
    empty = {"ipv4": None, "ipv6": None}
    write(connection, [make_change(HostRow, "merge", first | empty)])
    expected, waiting = empty, None
    for verb, given_values, flush in steps:
        if verb == "update" and expected is None:
            continue  # only an incorrect caller updates a row that does not exist
        key = first if verb == "merge" else {"mac": "aa"}
        change = make_change(HostRow, verb, {**key, **({} if verb == "delete" else given_values)})
        expected = None if verb == "delete" else (expected or empty) | given_values
        if waiting is None:
            waiting = change
        else:
            waiting.absorb(change)
        if flush:
            write(connection, [waiting])
            waiting = None
    write(connection, [waiting] if waiting else [])
    row = connection.execute(select(HostRow.ipv4, HostRow.ipv6)).one_or_none()
    assert (row._asdict() if row else None) == expected
    connection.rollback()


def test_a_batch_written_twice_has_the_effect_of_one(connection):
    flow = Flow(1, FiveTuple("10.0.0.1", "10.0.0.2", 1, 80), (Hop(1, 1, 2), Hop(2, 1, 2)), 5, 1460, 9)
    batch = [
        make_change(SwitchRow, "merge", {"dpid": 2**64 - 1, "connected": True, "last_seen_ns": 1}),
        make_change(HopRow, "delete", {"flow_id": 1, "position": 1}),
        make_change(FlowRow, "update", {"id": 1, "closed_ns": 9}),
        FlowOpened(flow),
    ]
    for _ in range(2):
        write(connection, batch)
        assert connection.execute(select(FlowRow.closed_ns)).all() == [(9,)]
        assert connection.execute(select(HopRow.position)).all() == [(0,)]
        assert connection.execute(select(SwitchRow.dpid, SwitchRow.connected)).all() == [(2**64 - 1, True)]
    connection.rollback()


def test_write_order_is_parents_children_deletions():
    key = {"flow_id": 1, "position": 0}
    hop = make_change(HopRow, "insert", {**key, "dpid": 1, "in_port": 1, "out_port": 1})
    flow, gone = make_change(FlowRow, "update", {"id": 1}), make_change(HopRow, "delete", key)
    assert in_write_order([gone, hop, flow]) == [flow, hop, gone]
