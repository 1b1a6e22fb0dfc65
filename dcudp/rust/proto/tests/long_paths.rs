//! RTTs from 0.2 to 100 ms: senders that marks steer fill the link, share it, and take up what others leave.

mod common;

use common::{connected, jain, Network, Sim};
use dcudp_proto::{Config, ConnectionId};

const LINK_BPS: u64 = 100_000_000;
/// 1400 bytes of a message in 1416 of UDP payload.
const LINK_SHARE: f64 = 1416.0 / 1400.0 * 8.0 / LINK_BPS as f64;

fn sending(rtt_us: u64, senders: usize) -> (Sim, Vec<ConnectionId>) {
    let network =
        Network { bottleneck_bps: Some(LINK_BPS), queue_packets: 2700, ..Network::plain(rtt_us / 2) };
    let config = Config { link_rate_bps: LINK_BPS, max_rate_bps: LINK_BPS * 8 / 5, ..Config::default() };
    let (mut sim, ids) = connected(network, &config, senders, 7);
    sim.hosts[0].counts_only = true;
    for (host, id) in ids.iter().enumerate() {
        sim.flow(host + 1, *id, None, 0, u64::MAX);
    }
    (sim, ids)
}

/// The part of the link that is used, and Jain's index, after 2 s.
fn steady(rtt_us: u64, senders: usize) -> (f64, f64) {
    let (mut sim, _) = sending(rtt_us, senders);
    let from_us = sim.now_us + 2_000_000;
    sim.run_until(from_us + 2_000_000);
    let received = sim.received(0, from_us, from_us + 2_000_000);
    let utilisation = received.iter().sum::<u64>() as f64 * LINK_SHARE / 2.0;
    println!("{senders} senders, RTT {rtt_us} us: {utilisation:.3} of the link, Jain {:.3}", jain(&received));
    (utilisation, jain(&received))
}

#[test]
fn one_sender_fills_the_link() {
    for rtt_us in [200, 1000, 5000, 20_000, 100_000] {
        let (utilisation, _) = steady(rtt_us, 1);
        assert!(utilisation > 0.9, "RTT {rtt_us} us: {utilisation:.3} of the link");
    }
}

#[test]
fn four_senders_share_the_link() {
    for rtt_us in [200, 1000, 5000, 20_000] {
        let (utilisation, jain) = steady(rtt_us, 4);
        assert!(utilisation > 0.82, "RTT {rtt_us} us: {utilisation:.3} of the link");
        assert!(jain > 0.85, "RTT {rtt_us} us: Jain {jain:.3}");
    }
}

#[test]
fn what_others_leave_is_taken_up_within_twenty_rtts() {
    for rtt_us in [1000, 5000, 20_000] {
        let (mut sim, ids) = sending(rtt_us, 4);
        let end_us = (sim.now_us / 1000 + 2000) * 1000;
        sim.run_until(end_us);
        for (host, id) in ids.iter().enumerate().skip(1) {
            let now = sim.clock(host + 1);
            sim.hosts[host + 1].endpoint.abort(now, *id);
        }
        let (from_us, until_us) = (end_us + 20 * rtt_us, end_us + 40 * rtt_us);
        sim.run_until(until_us);
        let total: u64 = sim.received(0, from_us, until_us).iter().sum();
        let utilisation = total as f64 * LINK_SHARE / (20.0 * rtt_us as f64 / 1e6);
        println!("RTT {rtt_us} us: {utilisation:.3} of the link from 20 to 40 RTTs after the others ended");
        assert!(utilisation > 0.85, "RTT {rtt_us} us: {utilisation:.3} of the link");
    }
}
