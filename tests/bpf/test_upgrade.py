"""State is moved from one set of maps into another one while packets pass.

The new maps have another size, which takes the same way as another layout.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import astuple, replace
from pathlib import Path

import pytest

from libbpf_cffi import libbpf
from openflow_ext.switch.dataplane.interface import DataPlaneError, HostSettings, PortSettings, SweepTimes
from openflow_ext.switch.dataplane.kernel import KernelDataPlane
from openflow_ext.switch.dataplane.removal import next_folder, old_folder, remove_data_plane
from openflow_ext.switch.dataplane.structs import constants as c
from openflow_ext.switch.dataplane.upgrade import pins
from tests.support.data_plane.bench import BRIDGE, OFPORT, PORT, Bench, reflex_entry, reverse, syn
from tests.support.data_plane.packets import ACK, RST, SYN, Offer, Segment, window_of

pytestmark = pytest.mark.beside_others

LOCAL = Segment()
OUT = reverse(LOCAL)
NAME = f"weir-move-{os.getpid()}"
OURS, THEIRS = Offer(scale=9), Offer(scale=5)
FLOWS = 300
MORE_FLOWS = 2000


@pytest.fixture
def earlier() -> Iterator[Bench]:
    """An earlier data plane with FLOWS counted flows, clamps of every kind, and some traffic."""
    plane = KernelDataPlane(NAME, max_flows=1000)
    try:
        plane.enter_port(PORT, BRIDGE, OFPORT)
        plane.configure(PORT, PortSettings(k_pkts=20, alarm=True), 100_000_000)
        bench = Bench(plane)
        bench.count_by_flags()
        for port in range(FLOWS):
            bench.handshake(flow(port), theirs=Offer(mss=1460 - port // 10))
        bench.handshake(replace(flow(9), src="2001:db8::1", dst="2001:db8::2"))
        bench.clamp_all_to(5000)
        bench.put(reflex_entry(flow(1)))
        plane.arm(PORT, BRIDGE, [reflex_entry(flow(2))])
        for port in range(0, FLOWS, 3):
            bench.ingress(flow(port))
            bench.egress(reverse(flow(port)))
        yield bench
    finally:
        plane.destroy()
        remove_data_plane(NAME)


def flow(port: int) -> Segment:
    return replace(LOCAL, src_port=1000 + port)


def held(plane: KernelDataPlane) -> tuple[object, ...]:
    """All that has to stay as it is."""
    flows = sorted(astuple(replace(one, age_s=0, silent_s=0)) for one in plane.pinned.flows())
    state = plane.pinned.maps["port_states"].get(plane.pinned.find_port(PORT)[0])
    sums = state.n_i, state.segments_bytes, state.two_segment_flows
    return flows, plane.counters(PORT), sums, plane.rules(BRIDGE), plane.armed(PORT), plane.settings(PORT)


def test_nothing_is_lost_in_a_move(earlier: Bench) -> None:
    before = held(earlier.plane)
    later = KernelDataPlane(NAME, max_flows=MORE_FLOWS)
    try:
        assert held(later) == before
        assert later.counters(PORT).n_i == FLOWS + 1
        assert later.pinned.max_flows == MORE_FLOWS
        assert not old_folder(later.folder).exists()
        assert not next_folder(later.folder).exists()
    finally:
        later.close()


def test_a_handshake_goes_on_after_a_move(earlier: Bench) -> None:
    earlier.opening(flow(FLOWS))
    earlier.ingress(syn(flow(FLOWS + 1)))
    before = held(earlier.plane)
    later = KernelDataPlane(NAME, max_flows=MORE_FLOWS)
    try:
        assert held(later) == before
        Bench(later).ingress(flow(FLOWS))
        assert later.counters(PORT).n_i == FLOWS + 2
        assert later.sweep(SweepTimes(opening_s=0)) == 1, "a sweep finds the other one"
    finally:
        later.close()


@pytest.mark.parametrize(
    ("is_ours", "moment"), [(True, "before the move"), (False, "after its last round before the exchange")]
)
def test_a_handshake_spans_a_move(
    earlier: Bench, monkeypatch: pytest.MonkeyPatch, is_ours: bool, moment: str
) -> None:
    """The SYN meets the earlier programs, and the SYN-ACK the new ones: the connection is as any other.

    ``is_ours``: the host behind the port opens it.
    """
    local = flow(FLOWS)
    exchange = pins.exchange

    def open_connection() -> None:
        if is_ours:
            earlier.ingress(syn(local, OURS))
        else:
            earlier.egress(syn(reverse(local), THEIRS))

    def exchange_after_opening(folder: Path) -> None:
        open_connection()
        exchange(folder)

    if moment == "before the move":
        open_connection()
    else:
        monkeypatch.setattr(pins, "exchange", exchange_after_opening)
    later = KernelDataPlane(NAME, max_flows=MORE_FLOWS)
    try:
        bench = Bench(later)
        assert later.counters(PORT).n_i == FLOWS + 1
        if is_ours:
            bench.egress(replace(syn(reverse(local), THEIRS), flags=SYN | ACK, ack=local.seq))
            bench.ingress(replace(local, flags=ACK, options=b"", payload=b""))
        else:
            bench.ingress(replace(syn(local, OURS), flags=SYN | ACK, ack=reverse(local).seq))
            bench.egress(replace(reverse(local), flags=ACK, options=b"", payload=b""))
        assert later.counters(PORT).n_i == FLOWS + 2
        (found,) = [one for one in later.pinned.flows() if one.local_port == local.src_port]
        assert (found.state, found.counted) == ("established", True)
        assert (found.local_scale, found.remote_scale) == (OURS.scale, THEIRS.scale)
        clamped = window_of(bench.ingress(local), local)
        assert clamped == window_of(bench.ingress(flow(4)), flow(4)) < local.window
        bench.ingress(replace(local, flags=RST))
        assert later.counters(PORT).n_i == FLOWS + 1
    finally:
        later.close()


def test_what_the_earlier_programs_do_until_the_exchange_is_moved_too(
    earlier: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new flow, payload, an end and clamped ACKs, after the last round before the exchange."""
    exchange = pins.exchange

    def pass_traffic_first(folder: Path) -> None:
        earlier.handshake(flow(FLOWS))
        earlier.egress(replace(reverse(flow(0)), flags=RST))
        earlier.egress(replace(reverse(flow(3)), payload=b"x" * 1000))
        for port in range(10, 20):
            earlier.ingress(flow(port))
        exchange(folder)

    monkeypatch.setattr(pins, "exchange", pass_traffic_first)
    later = KernelDataPlane(NAME, max_flows=MORE_FLOWS)
    try:
        assert held(later) == held(earlier.plane)
        assert later.counters(PORT).n_i == FLOWS + 1
    finally:
        later.close()


def test_what_both_versions_do_is_merged(earlier: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A packet meets the new programs before the last change of the earlier ones is moved."""
    before = earlier.counters
    attach = KernelDataPlane._attach_tracepoints

    def pass_traffic_first(later: KernelDataPlane) -> None:
        if later.folder.exists() and old_folder(later.folder).exists():
            for bench in (earlier, Bench(later)):
                bench.ingress(flow(0))
                bench.egress(replace(reverse(flow(0)), payload=b"x" * 1000))
                bench.ingress(replace(flow(6), flags=RST))
        attach(later)

    monkeypatch.setattr(KernelDataPlane, "_attach_tracepoints", pass_traffic_first)
    later = KernelDataPlane(NAME, max_flows=MORE_FLOWS)
    try:
        after = later.counters(PORT)
        assert after.acks_seen == before.acks_seen + 2
        assert after.clamped == before.clamped + 2
        assert after.n_i == before.n_i - 1, "both versions have seen the end of one flow"
        sent = {one.local_port: one.sent_bytes for one in later.pinned.flows() if one.local == LOCAL.src}
        was = {one.local_port: one.sent_bytes for one in earlier.plane.pinned.flows()}
        assert sent[1000] == was[1000] + len(replace(reverse(flow(0)), payload=b"x" * 1000).pack())
    finally:
        later.close()


def test_a_move_without_room_changes_nothing(earlier: Bench) -> None:
    before = held(earlier.plane)
    with pytest.raises(
        DataPlaneError, match=r"no room for \d+ flows of the earlier version: raise max_flows"
    ):
        KernelDataPlane(NAME, max_flows=FLOWS // 2)
    assert held(earlier.plane) == before
    assert not next_folder(earlier.plane.folder).exists()
    KernelDataPlane(NAME, max_flows=1000).close()


def test_maps_of_the_same_layout_and_size_are_adopted_as_they_are(earlier: Bench) -> None:
    pins_before = {pin.name: libbpf.pinned_map_id(pin) for pin in earlier.plane.folder.glob("*s")}
    before = held(earlier.plane)
    later = KernelDataPlane(NAME, max_flows=1000)
    try:
        assert held(later) == before
        assert {pin.name: libbpf.pinned_map_id(pin) for pin in later.folder.glob("*s")} == pins_before
    finally:
        later.close()


def test_state_is_discarded_on_demand(earlier: Bench) -> None:
    later = KernelDataPlane(NAME, max_flows=MORE_FLOWS, discard_state=True)
    try:
        assert later.attached() == {}
        assert list(later.pinned.flows()) == []
    finally:
        later.close()


@pytest.mark.parametrize("moment", ["before the exchange", "between its renames", "after it"])
def test_an_agent_that_was_killed_during_a_move_has_a_successor(earlier: Bench, moment: str) -> None:
    folder = earlier.plane.folder
    before = held(earlier.plane)
    next_folder(folder).mkdir()
    if moment == "between its renames":
        next_folder(folder).rmdir()
        folder.rename(next_folder(folder))
        old_folder(folder).mkdir()
    elif moment == "after it":
        next_folder(folder).rename(old_folder(folder))
    later = KernelDataPlane(NAME, max_flows=1000)
    try:
        assert held(later) == before
        assert not old_folder(folder).exists()
        assert not next_folder(folder).exists()
    finally:
        later.close()


def test_pins_of_a_newer_version_are_refused(earlier: Bench) -> None:
    settings = earlier.plane.pinned.maps["settings"]
    value = settings.get(settings.key(0))
    value.meaning += 1
    settings.put(settings.key(0), value)
    with pytest.raises(DataPlaneError, match=r"of a newer version.*--discard-state"):
        KernelDataPlane(NAME, max_flows=1000)


def test_pins_that_are_incomplete_are_refused(earlier: Bench) -> None:
    (earlier.plane.folder / "tallies").unlink()
    with pytest.raises(DataPlaneError, match=r"incomplete \(tallies missing\).*--discard-state"):
        KernelDataPlane(NAME, max_flows=1000)


def test_pins_that_weir_did_not_make_are_refused(earlier: Bench) -> None:
    libbpf.pin(earlier.plane.program("weir_sweep"), earlier.plane.folder / "foreign")
    with pytest.raises(DataPlaneError, match=r"a pin that Weir did not make .*foreign is not a map"):
        KernelDataPlane(NAME, max_flows=1000)


def test_an_agent_that_was_killed_while_it_made_the_maps_leaves_nothing_in_the_way(earlier: Bench) -> None:
    folder = earlier.plane.folder
    for pin in folder.iterdir():
        if pin.name not in ("settings", "ports"):
            pin.unlink()
    later = KernelDataPlane(NAME, max_flows=1000)
    try:
        assert later.attached() == {}
        later.configure_host(HostSettings())
    finally:
        later.close()


def test_a_flow_that_was_moved_without_its_numbers_learns_them(earlier: Bench) -> None:
    """As flows of a version that did not follow sequence numbers: then its end is believed."""
    segment = replace(flow(1), src="2001:db8::1", dst="2001:db8::2", src_port=1009)
    others = earlier.plane.pinned.maps["other_flows"]
    (key, value), *_ = others.items()
    value.flags |= c.WEIR_LEARNS_IN | c.WEIR_LEARNS_OUT
    others.put(key, value)
    far = replace(segment, seq=segment.seq + 2_000_000_000, ack=segment.ack + 2_000_000_000)
    before = earlier.counters
    earlier.ingress(far)
    earlier.egress(reverse(far))
    earlier.egress(replace(reverse(far), flags=RST))
    assert earlier.counters.disbelieved == before.disbelieved
    assert next(one for one in earlier.plane.pinned.flows() if ":" in one.local).state == "reset"
