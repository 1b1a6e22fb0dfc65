//! Random losses on a path that does not mark: a sender has about the rate that Reno would have.

mod common;

use common::{connected, Network};
use dcudp_proto::Config;

const FROM_US: u64 = 1_050_000;
const UNTIL_US: u64 = 5_050_000;
const PACKET_BITS: f64 = 8.0 * 1416.0;

/// Reno's rate in bit/s: one packet per RTT times the root of 3 / (2 p) (Mathis et al., CCR 1997).
fn reno_bps(loss: f64, rtt_us: u64) -> f64 {
    (1.5 / loss).sqrt() * PACKET_BITS * 1e6 / rtt_us as f64
}

#[test]
fn a_sender_has_at_least_half_of_what_reno_would_have() {
    for (rtt_us, loss) in [(1000, 0.05), (1000, 0.01), (10_000, 0.05), (10_000, 0.01)] {
        let network = Network { loss, ..Network::plain(rtt_us / 2) };
        let (mut sim, ids) = connected(network, &Config::default(), 1, 3);
        sim.hosts[0].counts_only = true;
        sim.flow(1, ids[0], Some(1_000_000_000), 50_000, UNTIL_US);
        sim.run_until(UNTIL_US);
        let total: u64 = sim.received(0, FROM_US, UNTIL_US).iter().sum();
        let rate_bps = total as f64 * 8e6 / (UNTIL_US - FROM_US) as f64;
        let part = rate_bps / reno_bps(loss, rtt_us);
        println!("{rtt_us} us, {loss} lost: {:.1} Mbit/s, {part:.2} of Reno's", rate_bps / 1e6);
        assert!(part >= 0.5, "{rtt_us} us, {loss} lost: {part:.2} of Reno's rate");
    }
}
