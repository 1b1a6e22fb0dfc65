//! A link that is slower than `link_rate_bps` says, and does not mark: the sender learns what it carries.

mod common;

use common::{connected, Network, Sim};
use dcudp_proto::Config;

const LINK_BPS: u64 = 100_000_000;

/// A sender that believes in 1 Gbit/s, after its first second on the slower link.
fn after_one_second() -> Sim {
    let network =
        Network { bottleneck_bps: Some(LINK_BPS), queue_packets: 100, marks: false, ..Network::paper() };
    let (mut sim, ids) = connected(network, &Config::default(), 1, 1);
    sim.hosts[0].counts_only = true;
    sim.flow(1, ids[0], None, 0, u64::MAX);
    sim.run_until(1_000_000);
    sim
}

#[test]
fn few_packets_are_lost_once_the_link_is_known() {
    let mut sim = after_one_second();
    let (drops, passed) = (sim.queue.drops, sim.queue.passed);
    sim.run_until(3_000_000);
    let share = (sim.queue.drops - drops) as f64 / (sim.queue.passed - passed) as f64;
    let total: u64 = sim.received(0, 1_000_000, 3_000_000).iter().sum();
    let carried = total as f64 * 8.0 / 2.0 / LINK_BPS as f64;
    println!("{share:.4} lost, {carried:.3} of the link");
    assert!(share < 0.05, "{share:.3} of the packets were lost");
    assert!(carried > 0.85, "{carried:.3} of the link");
}

#[test]
fn a_sender_whose_losses_end_takes_its_full_rate_again() {
    let mut sim = after_one_second();
    sim.network.bottleneck_bps = Some(10 * LINK_BPS);
    sim.run_until(2_500_000);
    let total: u64 = sim.received(0, 2_000_000, 2_500_000).iter().sum();
    let carried = total as f64 * 8.0 / 0.5 / (10 * LINK_BPS) as f64;
    assert!(carried > 0.85, "{carried:.3} of the faster link");
}
