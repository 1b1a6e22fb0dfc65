"""What a port may claim: rates, numbers of hosts, addresses of other ports, and hosts that are gone."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabric_app.claims import MOST_OF_A_PORT, Claims, Sighting
from fabric_app.core_types import Lost, Send
from fabric_app.frames import Arp, Neighbour, parse
from fabric_app.host_tracking import INHERITED_NS, HostLimits, HostTracking, Placed
from fabric_app.presence import PROBATION_NS, PROBE_NS, PROBES
from fabric_app.rates import BURST_S, Rates
from fabric_app.refusals import EVERY_NS, MOST_LINES, Reason, Refusals, Refused
from flowdb.flow import NS_PER_S, PortKey
from tests.support.openflow.scripted_switch import mac

TICK_NS = NS_PER_S // 10
GONE_NS = PROBATION_NS + PROBES * PROBE_NS + TICK_NS
LIMITS = HostLimits(port_hosts=4, port_new_hosts_per_s=100, host_idle_ns=60 * NS_PER_S)


def port(number: int) -> PortKey:
    return PortKey(1, number)


class Network:
    """Hosts behind ports, under the tracking: those in ``there`` answer probes at their port."""

    def __init__(self, limits: HostLimits = LIMITS) -> None:
        self.down: set[PortKey] = set()
        self.connected = True
        self.tracking = HostTracking(limits, lambda at: at not in self.down, lambda _dpid: self.connected)
        self.there: dict[tuple[str, str], PortKey] = {}
        self.now_ns = NS_PER_S
        self.events: list = []

    def send(self, number: int, at: int, ip: str | None = None, used_ip: str | None = None) -> bool:
        """A host sends a frame. Returns whether it may be answered."""
        outcome = self.tracking.sighted(Sighting(mac(number), port(at), ip, used_ip), self.now_ns)
        self.events += outcome.events
        return outcome.served

    def run(self, duration_ns: int) -> None:
        for _ in range(duration_ns // TICK_NS):
            self.now_ns += TICK_NS
            events, granted = self.tracking.tick(self.now_ns)
            self.events += [*events, *granted]
            for event in events:
                if isinstance(event, Send):
                    self._ask(event)

    def _ask(self, question: Send) -> None:
        frame = parse(question.frame)
        assert isinstance(frame.content, Arp | Neighbour)
        ip = frame.content.target_ip if isinstance(frame.content, Arp) else frame.content.target
        at = PortKey(question.dpid, question.ports[0])
        if self.there.get((frame.dst_mac, ip)) == at:
            self.events += self.tracking.sighted(Sighting(frame.dst_mac, at, ip), self.now_ns).events

    def refused(self) -> list[tuple[int, Reason]]:
        return [(e.port.port_no, e.reason) for e in self.events if isinstance(e, Refused)]

    def place(self, number: int) -> int | None:
        host = self.tracking.hosts.get(mac(number))
        return host.port.port_no if host else None


@settings(max_examples=200)
@given(
    st.integers(1, 1000),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, NS_PER_S)), max_size=200),
)
def test_a_rate_allows_what_is_stated_in_any_time(per_s: int, events: list[tuple[int, int]]) -> None:
    rates, now_ns = Rates(per_s), 0
    allowed: dict[int, list[int]] = {}
    for key, pause_ns in events:
        now_ns += pause_ns
        if rates.take(key, now_ns):
            allowed.setdefault(key, []).append(now_ns)
    for times in allowed.values():
        for first in range(len(times)):
            for last in range(first, len(times)):
                span_ns = times[last] - times[first]
                assert last - first + 1 <= per_s * (span_ns / NS_PER_S + BURST_S) + 1


def test_a_key_gets_its_whole_burst_whatever_others_use() -> None:
    rates = Rates(10)
    assert sum(rates.take("one", 0) for _ in range(1000)) == 10 * BURST_S
    assert sum(rates.take("other", 0) for _ in range(1000)) == 10 * BURST_S
    assert sum(rates.take("one", NS_PER_S) for _ in range(1000)) == 10


def test_a_port_has_a_limited_number_of_hosts_and_others_are_unharmed() -> None:
    net = Network()
    assert [net.send(number, 1) for number in range(6)] == [True] * 4 + [False] * 2
    assert net.refused() == [(1, Reason.HOSTS)] * 2
    assert net.send(10, 2)
    assert net.place(10) == 2


def test_an_uplink_has_any_number_of_hosts_up_to_the_limit_of_all() -> None:
    net = Network(
        HostLimits(max_hosts=50, port_hosts=1, port_new_hosts_per_s=1, uplinks=frozenset({port(9)}))
    )
    assert [net.send(number, 9) for number in range(60)] == [True] * 50 + [False] * 10
    assert net.refused() == [(9, Reason.TABLE_FULL)] * 10


def test_new_hosts_per_second_are_limited_for_each_port() -> None:
    net = Network(HostLimits(port_hosts=1000, port_new_hosts_per_s=5))
    served = [net.send(number, 1) for number in range(50)]
    assert served == [True] * 5 * BURST_S + [False] * (50 - 5 * BURST_S)
    assert set(net.refused()) == {(1, Reason.NEW_HOSTS)}
    assert all(net.send(number, 1) for number in range(5)), "known hosts are not new"


def test_a_host_that_nobody_answers_for_is_gone_after_its_probation() -> None:
    net = Network()
    net.there["00:00:00:00:00:02", "10.0.0.2"] = port(1)
    net.send(1, 1, "10.0.0.1")
    net.send(2, 1, "10.0.0.2")
    net.send(3, 1)
    net.run(GONE_NS)
    assert [net.place(number) for number in (1, 2, 3)] == [None, 1, None]
    assert {e.host.mac for e in net.events if isinstance(e, Lost)} == {mac(1), mac(3)}
    asked = [parse(e.frame).content.target_ip for e in net.events if isinstance(e, Send)]
    assert asked.count("10.0.0.1") == PROBES


@pytest.mark.parametrize("ip", ["10.0.0.1", "fe80::1"])
def test_a_silent_host_stays_while_it_answers(ip: str) -> None:
    net = Network()
    net.there[mac(1), ip] = port(1)
    net.send(1, 1, ip)
    net.run(3 * LIMITS.host_idle_ns)
    assert net.place(1) == 1
    asked = sum(isinstance(event, Send) for event in net.events)
    assert asked <= 4, "once after its probation, then once in each idle time"
    del net.there[mac(1), ip]
    net.run(LIMITS.host_idle_ns + GONE_NS)
    assert net.place(1) is None


def test_a_host_that_only_sent_segments_is_asked_for_the_address_that_it_used() -> None:
    net = Network()
    net.there[mac(1), "10.0.0.1"] = port(1)
    net.send(1, 1, used_ip="10.0.0.1")
    net.run(GONE_NS)
    assert net.place(1) == 1


def test_hosts_of_a_switch_without_a_session_stay() -> None:
    net = Network()
    net.send(1, 1, "10.0.0.1")
    net.connected = False
    net.run(10 * LIMITS.host_idle_ns)
    assert net.place(1) == 1


def test_a_host_of_an_earlier_controller_is_asked_when_it_was_heard() -> None:
    net = Network()
    net.events += net.tracking.inherit(mac(1), port(1), net.now_ns)
    assert net.tracking.is_unheard(mac(1))
    net.run(2 * GONE_NS)
    assert net.place(1) == 1
    net.events.clear()
    net.send(1, 1, "10.0.0.1")
    assert not net.tracking.is_unheard(mac(1))
    assert [type(event) for event in net.events] == [Placed], "its entries follow"
    net.events += net.tracking.inherit(mac(2), port(1), net.now_ns)
    net.run(INHERITED_NS + GONE_NS)
    assert net.place(2) is None


@pytest.mark.parametrize("ip", [None, "10.0.0.1"])
def test_a_host_that_answers_at_its_port_does_not_move(ip: str | None) -> None:
    net = Network()
    net.there[mac(1), "10.0.0.1"] = port(1)
    net.send(1, 1, "10.0.0.1")
    for _ in range(40):
        net.send(1, 2, ip)
        net.run(TICK_NS)
        assert net.place(1) == 1
    assert set(net.refused()) == {(2, Reason.ADDRESS)}


def test_a_host_that_does_not_answer_moves_in_time() -> None:
    net = Network()
    net.send(1, 1, "10.0.0.1")
    net.send(1, 2, "10.0.0.1")
    net.run(LIMITS.host_move_ns - TICK_NS)
    assert net.place(1) == 1
    net.run(5 * TICK_NS)
    assert net.place(1) == 2
    assert net.refused() == []
    assert net.tracking.hosts.with_ip("10.0.0.1").port == port(2)


def test_a_host_whose_port_is_down_moves_at_once() -> None:
    net = Network()
    net.send(1, 1, "10.0.0.1")
    net.down.add(port(1))
    assert net.send(1, 2, "10.0.0.1")
    assert net.place(1) == 2


def test_an_ip_address_that_answers_is_not_given_to_another_port() -> None:
    net = Network()
    net.there[mac(1), "10.0.0.1"] = port(1)
    net.send(1, 1, "10.0.0.1")
    assert net.send(2, 1, "10.0.0.9")
    assert not net.send(3, 2, "10.0.0.1"), "nobody hears the claim"
    net.run(3 * NS_PER_S)
    assert net.tracking.hosts.with_ip("10.0.0.1").mac == mac(1)
    assert net.refused() == [(2, Reason.ADDRESS)]
    assert net.place(3) == 2, "the claimant is a host like any other"


def test_an_ip_address_moves_when_its_owner_does_not_answer() -> None:
    net = Network()
    net.send(1, 1, "10.0.0.1")
    net.send(3, 2, "10.0.0.1")
    net.run(LIMITS.host_move_ns + 5 * TICK_NS)
    assert net.tracking.hosts.with_ip("10.0.0.1").mac == mac(3)
    assert [event.ip for event in net.events if isinstance(event, Sighting)] == ["10.0.0.1"]


def test_an_ip_address_moves_at_once_within_a_port() -> None:
    net = Network()
    net.send(1, 1, "10.0.0.1")
    assert net.send(2, 1, "10.0.0.1")
    assert net.tracking.hosts.with_ip("10.0.0.1").mac == mac(2)


@pytest.mark.parametrize("at", [1, 2])
def test_a_host_that_lost_its_address_is_reported_without_it(at: int) -> None:
    net = Network()
    net.send(1, 1, "10.0.0.1")
    net.events.clear()
    net.send(3, at, "10.0.0.1")
    net.run(LIMITS.host_move_ns + 5 * TICK_NS)
    placed = {event.host.mac: event.host.ipv4 for event in net.events if isinstance(event, Placed)}
    assert placed == {mac(1): None, mac(3): "10.0.0.1"}


@pytest.mark.parametrize(("own", "shared"), [("10.0.0.1", "10.0.0.100"), ("fe80::1", "fe80::100")])
def test_a_host_that_gave_an_address_away_is_asked_for_another_one(own: str, shared: str) -> None:
    net = Network()
    net.there = {(mac(1), own): port(1), (mac(2), shared): port(1)}
    for number, ip in ((1, own), (1, shared), (2, shared)):
        assert net.send(number, 1, ip)
    net.run(LIMITS.host_idle_ns + GONE_NS)
    assert (net.place(1), net.place(2)) == (1, 1)


def test_the_open_claims_of_a_port_are_limited() -> None:
    claims = Claims(NS_PER_S)
    opened = [claims.open(f"10.0.{n // 256}.{n % 256}", Sighting(mac(1), port(1)), 0) for n in range(200)]
    assert opened == [True] * MOST_OF_A_PORT + [False] * (200 - MOST_OF_A_PORT)
    assert claims.open("10.1.0.1", Sighting(mac(2), port(2)), 0)
    assert not claims.open("10.1.0.1", Sighting(mac(3), port(3)), 0), "the first claim is decided first"


def test_refusals_are_logged_at_a_bounded_rate() -> None:
    refusals = Refusals()
    assert list(refusals.due(0)) == []
    texts = [refusals.note(port(1), Reason.HOSTS, "x").text for _ in range(1000)]
    assert texts[0] == "port 0000000000000001:1: refused: hosts above [fabric] port_hosts (x)"
    assert set(texts[1:]) == {""}
    others = [refusals.note(port(2 + n), Reason.HOSTS).text for n in range(100)]
    assert sum(map(bool, others)) == MOST_LINES - 1
    assert list(refusals.due(EVERY_NS - 1)) == []
    lines = [complaint.text for complaint in refusals.due(EVERY_NS)]
    assert lines[0].startswith("port 0000000000000001:1: refused 999 more: hosts above")
    assert len(lines) <= MOST_LINES + 1


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 12), st.integers(1, 3), st.none() | st.integers(0, 12), st.integers(0, 30)),
        max_size=80,
    )
)
def test_whatever_a_hostile_port_sends_hosts_that_answer_stay(
    frames: list[tuple[int, int, int | None, int]],
) -> None:
    """Hosts 100 and 101 answer at ports 4 and 5; ports 1 to 3 send anything, also in their names."""
    net = Network()
    honest = {100: 4, 101: 5}
    for number, at in honest.items():
        net.there[mac(number), f"10.0.0.{number}"] = port(at)
        assert net.send(number, at, f"10.0.0.{number}")
    for number, at, ip, pause in frames:
        sender = number if number > 1 else 100 + number
        claimed = None if ip is None else ip if ip > 1 else 100 + ip
        net.send(sender, at, None if claimed is None else f"10.0.0.{claimed}")
        net.run(pause * TICK_NS)
        for host, place in honest.items():
            assert net.place(host) == place
            assert net.tracking.hosts.with_ip(f"10.0.0.{host}").mac == mac(host)
        counts = [net.tracking.hosts.count_at(port(n)) for n in range(1, 6)]
        assert max(counts) <= LIMITS.port_hosts
        assert sum(counts) == len(net.tracking.hosts) == net.tracking.hosts.count_at_switch(1)
    net.run(LIMITS.host_idle_ns + GONE_NS)
    assert {host.mac for host in net.tracking.hosts} == {mac(100), mac(101)}
