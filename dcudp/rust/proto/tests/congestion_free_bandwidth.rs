//! Figure 8: a sender takes up the bandwidth that another one leaves, within 50 ms.

mod common;

use common::{connected, Network};
use dcudp_proto::Config;

#[test]
fn the_remaining_sender_fills_the_link_within_50_ms() {
    for senders in [2, 4] {
        let config = Config { max_rate_bps: 1_600_000_000, ..Config::default() };
        let (mut sim, ids) = connected(Network::paper(), &config, senders, senders as u64);
        sim.hosts[0].counts_only = true;
        for (host, id) in ids.iter().enumerate() {
            let until = if host == 0 { 1_000_000 } else { 500_000 };
            sim.flow(host + 1, *id, Some(1_000_000_000), 0, until);
        }
        // The send buffers of those that end still have to drain; they end when their last byte arrives.
        sim.run_until(500_000);
        for (host, id) in ids.iter().enumerate().skip(1) {
            let now = sim.clock(host + 1);
            sim.hosts[host + 1].endpoint.abort(now, *id);
        }
        sim.run_until(1_000_000);
        let received: u64 = sim.received(0, 550_000, 600_000).iter().sum();
        let share = received as f64 * 8.0 / 0.05 / 1e9;
        println!("{senders} senders: {share:.3} of the link from 50 to 100 ms after the others ended");
        assert!(share > 0.9, "{share:.3} of the link");
    }
}
