//! A peer that vanishes: the connection ends with an error after `dead_after_us`, and until then the rate
//! falls.

mod common;

use common::{connected, Network};
use dcudp_proto::{CloseReason, Config, Event};

#[test]
fn both_kinds_of_end_see_the_timeout() {
    let config = Config { dead_after_us: 5_000_000, ..Config::default() };
    for gone in [0, 1] {
        let (mut sim, ids) = connected(Network::plain(100), &config, 1, 1);
        sim.flow(1, ids[0], None, 0, u64::MAX);
        sim.run_until(100_000);
        sim.hosts[gone].gone = true;
        sim.run_until(4_000_000);
        let left = 1 - gone;
        assert!(!sim.has_event(left, |event| matches!(event, Event::Closed { .. })));
        sim.run_until(5_200_000);
        let lost = |bytes: usize| (bytes > 0) == (left == 1);
        assert!(sim.has_event(left, |event| matches!(
            event,
            Event::Closed { reason: CloseReason::Timeout, unconfirmed_bytes } if lost(*unconfirmed_bytes)
        )));
        assert_eq!(sim.hosts[left].endpoint.endpoint_statistics().connections, 0);
    }
}

#[test]
fn a_silent_peer_gets_ever_fewer_packets() {
    let config = Config { dead_after_us: 60_000_000, receive_window_packets: 1 << 20, ..Config::default() };
    let config = Config { send_buffer_bytes: 1 << 30, ..config };
    let (mut sim, ids) = connected(Network::plain(100), &config, 1, 2);
    sim.flow(1, ids[0], Some(500_000_000), 0, u64::MAX);
    sim.run_until(200_000);
    let before = sim.datagrams;
    sim.run_until(300_000);
    let rate_before = sim.datagrams - before;
    sim.hosts[0].gone = true;
    sim.run_until(3_000_000);
    let before = sim.datagrams;
    sim.run_until(4_000_000);
    let rate_after = (sim.datagrams - before) / 10;
    assert!(rate_before > 4000, "{rate_before} in 100 ms");
    assert!(rate_after < rate_before / 20, "{rate_after} in 100 ms, before {rate_before}");
    let statistics = sim.hosts[1].endpoint.statistics(ids[0]).expect("open");
    assert!(statistics.timeouts >= 3, "{statistics:?}");
}

#[test]
fn the_rate_returns_with_the_feedback() {
    let (mut sim, ids) = connected(Network::plain(100), &Config::default(), 1, 3);
    sim.flow(1, ids[0], Some(100_000_000), 0, u64::MAX);
    sim.run_until(200_000);
    sim.hosts[0].paused_until_us = 2_000_000;
    sim.run_until(3_000_000);
    let received: u64 = sim.received(0, 2_500_000, 3_000_000).iter().sum();
    assert!(received > 5_500_000, "{received} bytes in half a second at 100 Mbit/s");
}
