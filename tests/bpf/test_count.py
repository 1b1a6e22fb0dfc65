"""N_i at egress: each connection counts once in spite of retransmissions; the sweep; the full table."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openflow_ext.switch.dataplane.interface import HostSettings, SweepTimes
from openflow_ext.switch.dataplane.structs import constants
from tests.support.data_plane.bench import PORT, Bench, reverse, syn
from tests.support.data_plane.ni_reference import Reference
from tests.support.data_plane.packets import ACK, FIN, RST, SYN, Offer, Segment
from tests.support.waiting import wait_until

pytestmark = pytest.mark.beside_others

LOCAL = Segment()
OUT = reverse(LOCAL)
LOCAL_6 = Segment(src="fd00::1", dst="fd00::2")
OUT_6 = reverse(LOCAL_6)


@pytest.mark.parametrize("opened_by", ["remote", "local"])
def test_a_flow_counts_from_the_end_of_its_handshake_until_its_fin(bench: Bench, opened_by: str) -> None:
    bench.count_by_flags()
    if opened_by == "remote":
        bench.egress(syn(OUT))
        bench.ingress(replace(syn(LOCAL), flags=SYN | ACK, ack=OUT.seq))
        assert bench.counters.n_i == 0
        bench.egress(OUT)
    else:
        bench.opening(LOCAL)
        assert bench.counters.n_i == 0
        bench.ingress(LOCAL)

    assert bench.counters.n_i == 1
    bench.egress(replace(OUT, flags=FIN | ACK))
    assert bench.counters.n_i == 0


def test_a_handshake_whose_ack_is_wrong_is_not_complete(bench: Bench) -> None:
    """A host that forges its address does not know what the answer to its SYN was."""
    bench.count_by_flags()
    bench.egress(syn(OUT))
    bench.ingress(replace(syn(LOCAL), flags=SYN | ACK, ack=OUT.seq))
    bench.egress(replace(OUT, ack=77))
    bench.ingress(LOCAL)

    assert bench.counters.n_i == 0


def test_retransmitted_syn_and_fin_count_once(bench: Bench) -> None:
    bench.count_by_flags()
    for _ in range(3):
        bench.egress(syn(OUT))
        bench.ingress(replace(syn(LOCAL), flags=SYN | ACK, ack=OUT.seq))
    bench.egress(OUT)
    bench.egress(OUT)
    assert bench.counters.n_i == 1
    for _ in range(3):
        bench.egress(replace(OUT, flags=FIN | ACK))
    assert bench.counters.n_i == 0
    assert (bench.counters.syns_counted, bench.counters.fins_counted) == (1, 1)


def test_reset_by_either_side_ends_the_flow(bench: Bench) -> None:
    bench.count_by_flags()
    for number, end in enumerate((bench.ingress, bench.egress)):
        local = replace(LOCAL, src_port=1 + number)
        bench.handshake_in(local)
        assert bench.counters.n_i == 1
        end(replace(local if end == bench.ingress else reverse(local), flags=RST | ACK))
        assert bench.counters.n_i == 0


def test_reused_ports_count_as_a_new_connection(bench: Bench) -> None:
    bench.count_by_flags()
    bench.handshake_in(LOCAL)
    bench.egress(replace(OUT, flags=FIN | ACK))

    bench.handshake_in(replace(LOCAL, seq=7000, ack=9000))

    assert bench.counters.n_i == 1


def test_n_i_stays_0_without_count_entries(bench: Bench) -> None:
    bench.handshake_in(LOCAL)
    assert bench.counters.n_i == 0


def test_sweep_removes_ended_and_silent_flows(bench: Bench) -> None:
    bench.count_by_flags()
    for port in (1, 2):
        bench.handshake_in(replace(LOCAL, src_port=port))
    bench.egress(replace(OUT, dst_port=2, flags=RST))

    assert bench.plane.sweep(SweepTimes(closed_s=0)) == 1
    assert bench.counters.n_i == 1
    assert bench.plane.sweep(SweepTimes(closed_s=0, silent_s=0)) == 1
    assert bench.counters.n_i == 0


def test_a_sweep_is_due_only_when_it_may_find_something(bench: Bench) -> None:
    never = SweepTimes(idle_s=3600, silent_s=3600)
    bench.plane.sweep(never)
    assert not bench.plane.sweep_is_due(never), "no flow"
    bench.count_by_flags()
    bench.handshake_in(LOCAL)
    assert bench.plane.sweep_is_due(never), "the first flow"
    bench.plane.sweep(never)
    assert not bench.plane.sweep_is_due(never)
    bench.egress(replace(OUT, flags=RST))
    assert bench.plane.sweep_is_due(never), "a flow has ended"
    soon = SweepTimes(idle_s=3600, silent_s=3600, closed_s=0.05)
    bench.plane.sweep(soon)
    assert not bench.plane.sweep_is_due(soon)
    wait_until(lambda: bench.plane.sweep_is_due(soon), "the ended flow has to be removed", timeout_s=5)
    assert bench.plane.sweep(soon) == 1
    assert not bench.plane.sweep_is_due(soon), "no flow is left"


def test_sweep_visits_each_flow_once(bench: Bench) -> None:
    """There are more flows than one call visits. The next sweep visits the remaining flows again."""
    bench.count_by_flags()
    for port in range(900):
        bench.handshake_in(replace(LOCAL, src_port=port))
        if port % 2:
            bench.egress(replace(OUT, dst_port=port, flags=RST))

    assert [bench.plane.sweep(SweepTimes(closed_s=0)) for _ in range(2)] == [450, 0]
    assert bench.counters.n_i == 450
    assert bench.plane.sweep(SweepTimes(idle_s=1e-9)) == 0
    assert bench.counters.n_i == 0
    assert [bench.plane.sweep(SweepTimes(silent_s=0)) for _ in range(2)] == [450, 0]
    for port in range(1000):
        bench.handshake_in(replace(LOCAL, src_port=port))
    assert bench.counters.n_i == 1000, "removed flows make room"


@pytest.mark.parametrize("kinds", [(LOCAL,), (LOCAL_6,), (LOCAL, LOCAL_6)], ids=["v4", "v6", "both"])
def test_full_table_counts_flows_that_it_does_not_track(bench: Bench, kinds: tuple[Segment, ...]) -> None:
    """The limit holds for IPv4 and IPv6 flows together."""
    bench.count_by_flags()
    for number in range(1100):
        bench.handshake_in(replace(kinds[number % len(kinds)], src_port=number))

    assert bench.counters.n_i == 1000
    assert bench.counters.untracked == 100
    assert sum(1 for _ in bench.plane.pinned.flows()) == 1000
    bench.plane.detach(PORT)
    bench.plane.enter_port(PORT, 3, 7)
    assert bench.counters.n_i == 0


def test_flows_of_buckets_and_hash_are_read_together(bench: Bench) -> None:
    for out in (OUT, OUT_6):
        bench.egress(syn(out))

    read = [
        (flow.local, flow.local_port, flow.remote, flow.remote_port) for flow in bench.plane.pinned.flows()
    ]

    assert read == [(out.dst, out.dst_port, out.src, out.src_port) for out in (OUT, OUT_6)]


def test_flow_with_one_mapped_address_is_ipv6(bench: Bench) -> None:
    """No host sends such a packet, but an attacker may."""
    bench.egress(syn(OUT))
    bench.egress(syn(replace(OUT, dst=f"::ffff:{OUT.dst}", src="fd00::a00:2")))

    assert [flow.remote for flow in bench.plane.pinned.flows()] == [OUT.src, "fd00::a00:2"]


_EVENTS = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.sampled_from(["syn", "synack", "ack", "fin", "rst"]),
        st.sampled_from(["in", "out"]),
        st.integers(0, 2),
        st.integers(0, 2),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=_EVENTS)
def test_n_i_equals_the_reference_model(bench: Bench, events: list[tuple[int, str, str, int, int]]) -> None:
    """Small cases, which hypothesis can shrink. test_reference.py has the long run."""
    bench.plane.detach(PORT)
    bench.plane.enter_port(PORT, 3, 7)
    for rule, _ in bench.plane.rules(3):
        bench.plane.remove(3, rule)
    bench.count_by_flags()
    reference = Reference(room=1000)
    kinds = {"syn": SYN, "synack": SYN | ACK, "fin": FIN | ACK, "rst": RST | ACK, "ack": ACK}
    for at, (flow, kind, way, seq, ack) in enumerate(events):
        flags = kinds[kind]
        options = Offer().pack() if flags & SYN else b""
        segment = replace(LOCAL if way == "in" else OUT, flags=flags, seq=seq, ack=ack, options=options)
        segment = replace(segment, **{"src_port" if way == "in" else "dst_port": 100 + flow})
        (bench.ingress if way == "in" else bench.egress)(segment)
        reference.segment(flow, way, flags, seq, ack, payload=0, at=at)
        assert bench.counters.n_i == reference.n_i


def data(segment: Segment) -> Segment:
    return replace(segment, flags=ACK, payload=b"x" * 100)


def test_idle_flows_leave_n_i_until_their_next_payload(bench: Bench) -> None:
    """SCCP, section III.E."""
    bench.count_by_flags()
    bench.handshake_in(LOCAL)

    bench.plane.sweep(SweepTimes(idle_s=1))
    assert bench.counters.n_i == 1
    bench.plane.sweep(SweepTimes(idle_s=1e-9))
    assert bench.counters.n_i == 0
    bench.egress(replace(OUT, flags=ACK))
    assert bench.counters.n_i == 0, "a pure ACK has no payload"
    bench.egress(data(OUT))
    assert bench.counters.n_i == 1
    bench.egress(replace(OUT, flags=FIN | ACK))
    assert bench.counters.n_i == 0


def test_idle_flow_that_ends_stays_out_of_n_i(bench: Bench) -> None:
    bench.count_by_flags()
    bench.handshake_in(LOCAL)
    bench.plane.sweep(SweepTimes(idle_s=1e-9))
    bench.egress(replace(OUT, flags=FIN | ACK))

    bench.egress(data(OUT))

    assert bench.counters.n_i == 0


def test_simple_count_is_the_integer_of_the_paper(bench: Bench) -> None:
    """SCCP, section III.A: one per matching packet, without flow state; never below 0."""
    bench.plane.configure_host(HostSettings(simple_count=True))
    bench.count_by_flags()
    for _ in range(3):
        bench.egress(syn(OUT))
    assert bench.counters.n_i == 3
    for _ in range(5):
        bench.egress(replace(OUT, flags=FIN | ACK))
    assert bench.counters.n_i == 0


@pytest.mark.parametrize("idle", [False, True])
def test_flows_counted_before_leave_the_papers_integer_by_packets_alone(bench: Bench, idle: bool) -> None:
    """The next agent adopts the flows, and its settings have the other count."""
    bench.count_by_flags()
    bench.handshake_in(LOCAL)
    if idle:
        bench.plane.sweep(SweepTimes(idle_s=1e-9))
    bench.plane.configure_host(HostSettings(simple_count=True))
    bench.egress(data(OUT))
    bench.egress(replace(OUT, seq=OUT.seq + 100, flags=FIN | ACK))
    assert bench.counters.n_i == 0

    assert bench.plane.sweep(SweepTimes(silent_s=0)) == 1

    assert (bench.counters.n_i, bench.counters.fins_counted) == (0, 0 if idle else 1)


def test_n_i_is_the_number_of_counted_flows_after_the_papers_integer(bench: Bench) -> None:
    bench.count_by_flags()
    bench.handshake_in(LOCAL)
    bench.plane.configure_host(HostSettings(simple_count=True))
    for _ in range(3):
        bench.egress(syn(replace(OUT, dst_port=2)))
    assert bench.counters.n_i == 4

    bench.plane.configure_host(HostSettings())

    assert bench.counters.n_i == 1
    bench.egress(replace(OUT, flags=FIN | ACK))
    assert bench.counters.n_i == 0


def test_a_flow_that_makes_room_in_the_reserve_is_not_counted(bench: Bench) -> None:
    """Its handshake ends while another CPU removes it: nothing would take it out of N_i again."""
    bench.count_by_flags()
    bench.opening(LOCAL_6)
    flows = bench.plane.pinned.maps["other_flows"]
    [(key, flow)] = flows.items()
    flow.flags |= constants.WEIR_GIVES_WAY
    flows.put(key, flow)
    bench.ingress(LOCAL_6)
    flows.delete(key)  # as the other CPU does
    assert (bench.counters.n_i, bench.counters.untracked) == (0, 1)
