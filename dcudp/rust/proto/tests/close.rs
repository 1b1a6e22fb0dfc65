//! Ends of connections.

mod common;

use common::{connected, messages, Network};
use dcudp_proto::{CloseReason, Config, Event, SendError};

fn closed(reason: CloseReason, unconfirmed_bytes: usize) -> Event {
    Event::Closed { reason, unconfirmed_bytes }
}

#[test]
fn close_waits_for_all_data() {
    let network = Network { loss: 0.05, ..Network::plain(100) };
    let (mut sim, ids) = connected(network, &Config::default(), 1, 1);
    let sent = messages(2, 100, 20_000);
    for message in &sent {
        sim.send(1, ids[0], message).expect("space");
    }
    let now = sim.clock(1);
    sim.hosts[1].endpoint.close(now, ids[0]);
    assert_eq!(sim.send(1, ids[0], b"more"), Err(SendError::Closed));
    sim.run_until(10_000_000);
    assert!(sim.messages(0) == sent, "the messages differ");
    assert!(sim.has_event(0, |event| *event == closed(CloseReason::Peer, 0)));
    assert!(sim.has_event(1, |event| *event == closed(CloseReason::Local, 0)));
    for host in [0, 1] {
        assert_eq!(sim.hosts[host].endpoint.endpoint_statistics().connections, 0);
    }
}

#[test]
fn close_takes_two_rtts_after_the_last_packet() {
    const RTT_US: u64 = 5_000;
    for closes_later in [false, true] {
        let (mut sim, ids) = connected(Network::plain(RTT_US / 2), &Config::default(), 1, 8);
        sim.send(1, ids[0], &[1; 20_000]).expect("space");
        if closes_later {
            let soon = sim.now_us + 500;
            sim.run_until(soon);
        }
        let (now, began_us) = (sim.clock(1), sim.now_us);
        sim.hosts[1].endpoint.close(now, ids[0]);
        sim.run_until(2_000_000);
        let (ended_us, ..) = sim.hosts[1].events.last().expect("an end");
        assert!(sim.has_event(1, |event| *event == closed(CloseReason::Local, 0)));
        assert!(ended_us - began_us < 2 * RTT_US + 1_000, "{} us", ended_us - began_us);
    }
}

#[test]
fn close_without_a_peer_ends_after_the_linger_time() {
    let config = Config { linger_us: 2_000_000, ..Config::default() };
    let (mut sim, ids) = connected(Network::plain(100), &config, 1, 2);
    sim.hosts[0].gone = true;
    sim.send(1, ids[0], b"lost").expect("space");
    let now = sim.clock(1);
    sim.hosts[1].endpoint.close(now, ids[0]);
    sim.run_until(4_000_000);
    assert!(sim.has_event(1, |event| *event == closed(CloseReason::LocalUnacknowledged, 4)));
}

#[test]
fn abort_is_reported_as_such() {
    let (mut sim, ids) = connected(Network::plain(100), &Config::default(), 1, 3);
    sim.send(1, ids[0], &[1; 50_000]).expect("space");
    let now = sim.clock(1);
    sim.hosts[1].endpoint.abort(now, ids[0]);
    sim.run_until(1_000_000);
    assert!(sim.has_event(0, |event| *event == closed(CloseReason::PeerAborted, 0)));
    assert!(sim.has_event(1, |event| *event == closed(CloseReason::LocalUnacknowledged, 50_000)));
}

#[test]
fn both_may_close_at_once() {
    let (mut sim, ids) = connected(Network::plain(100), &Config::default(), 1, 4);
    let incoming = sim.hosts[0].events[0].1;
    let (here, there) = (sim.clock(1), sim.clock(0));
    sim.hosts[1].endpoint.close(here, ids[0]);
    sim.hosts[0].endpoint.close(there, incoming);
    sim.run_until(2_000_000);
    for host in [0, 1] {
        assert!(sim.has_event(host, |event| *event == closed(CloseReason::Local, 0)));
        assert_eq!(sim.hosts[host].endpoint.endpoint_statistics().connections, 0);
    }
}

/// Without a loss the last report of the peer, which its shutdown carries, names all that it delivered.
#[test]
fn a_close_at_the_same_time_as_the_peers_counts_what_did_not_arrive() {
    let network = Network { bottleneck_bps: Some(100_000_000), ..Network::plain(100) };
    let (mut sim, ids) = connected(network, &Config::default(), 1, 5);
    let incoming = sim.hosts[0].events[0].1;
    let sent = messages(6, 100, 20_000);
    for message in &sent {
        sim.send(1, ids[0], message).expect("space");
    }
    let now = sim.clock(1);
    sim.hosts[1].endpoint.close(now, ids[0]);
    let soon = sim.now_us + 20_000;
    sim.run_until(soon);
    let now = sim.clock(0);
    sim.hosts[0].endpoint.close(now, incoming);
    sim.run_until(2_000_000);
    let delivered = sim.messages(0);
    assert!(!delivered.is_empty() && delivered == sent[..delivered.len()]);
    let lost_bytes: usize = sent[delivered.len()..].iter().map(Vec::len).sum();
    assert!(lost_bytes > 0);
    assert!(sim.has_event(1, |event| *event == closed(CloseReason::Peer, lost_bytes)));
    assert!(sim.has_event(0, |event| *event == closed(CloseReason::Local, 0)));
}

#[test]
fn a_peer_that_closes_after_a_message_confirms_it() {
    let (mut sim, ids) = connected(Network::plain(100), &Config::default(), 1, 7);
    let incoming = sim.hosts[0].events[0].1;
    sim.send(1, ids[0], b"a request").expect("space");
    while sim.messages(0).is_empty() {
        let soon = sim.now_us + 10;
        sim.run_until(soon);
    }
    assert_eq!(sim.hosts[1].endpoint.statistics(ids[0]).expect("open").acknowledged, 0);
    let now = sim.clock(0);
    sim.hosts[0].endpoint.close(now, incoming);
    sim.run_until(2_000_000);
    assert!(sim.has_event(1, |event| *event == closed(CloseReason::Peer, 0)));
}
