//! A sender is never faster than its limit: not in the UDP Mode, not after a pause of the application or of
//! the process, and not with retransmissions.

mod common;

use common::{connected, Network, Sim};
use dcudp_proto::Config;

const LIMIT_BPS: u64 = 100_000_000;

/// The largest number of data packets in any 10 ms.
fn busiest(sim: &mut Sim, until_us: u64) -> u64 {
    let mut largest = 0;
    while sim.now_us < until_us {
        let before = sim.data;
        let until = sim.now_us + 10_000;
        sim.run_until(until);
        largest = largest.max(sim.data - before);
    }
    largest
}

#[test]
fn no_ten_milliseconds_carry_more_than_the_limit() {
    let network = Network { loss: 0.02, ..Network::plain(100) };
    let config = Config { max_rate_bps: LIMIT_BPS, ..Config::default() };
    let (mut sim, ids) = connected(network, &config, 1, 1);
    sim.hosts[0].counts_only = true;
    sim.flow(1, ids[0], None, 0, u64::MAX);
    let steady = busiest(&mut sim, 500_000);
    sim.hosts[1].paused_until_us = sim.now_us + 300_000;
    let after_pause = busiest(&mut sim, 1_500_000);
    // 1416-byte packets in 10 ms, 250 us that a late sender makes up.
    let allowed = LIMIT_BPS / 8 / 1416 / 100 * 103 / 100 + 5;
    println!("{steady} and {after_pause} data packets in 10 ms, {allowed} allowed");
    assert!(steady <= allowed && after_pause <= allowed, "{steady} and {after_pause} of {allowed}");
    let received: u64 = sim.received(0, 1_000_000, 1_500_000).iter().sum();
    assert!(received > 3_000_000, "{received} bytes in half a second: the test shows nothing");
}
