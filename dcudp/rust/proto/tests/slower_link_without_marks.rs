//! A link that does not mark: a sender learns what it carries, and several senders share it.

mod common;

use common::{connected, jain, Network, Sim};
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

#[test]
fn several_senders_share_the_link() {
    for (mbps, senders) in [(100, 2), (100, 4), (100, 10), (1000, 2), (1000, 4), (1000, 10)] {
        let link_bps = mbps * 1_000_000;
        let (queue_packets, marks) = (100, false);
        let network = Network { bottleneck_bps: Some(link_bps), queue_packets, marks, ..Network::plain(500) };
        let offered_bps = link_bps * 8 / 5;
        let config = Config { link_rate_bps: link_bps, max_rate_bps: offered_bps, ..Config::default() };
        let (mut sim, ids) = connected(network, &config, senders, 7);
        sim.hosts[0].counts_only = true;
        for (host, id) in ids.iter().enumerate() {
            sim.flow(host + 1, *id, Some(offered_bps), 50_000, 5_050_000);
        }
        sim.run_until(1_050_000);
        let (drops, passed) = (sim.queue.drops, sim.queue.passed);
        sim.run_until(5_050_000);
        let received = sim.received(0, 1_050_000, 5_050_000);
        let carried = received.iter().sum::<u64>() as f64 * 8.0 / 4.0 / link_bps as f64;
        let lost = (sim.queue.drops - drops) as f64 / (sim.queue.passed - passed) as f64;
        let fairness = jain(&received);
        println!(
            "{mbps} Mbit/s, {senders} senders: {carried:.3} of the link, Jain {fairness:.3}, {lost:.4} lost"
        );
        assert!(carried > 0.9, "{mbps} Mbit/s, {senders} senders: {carried:.3} of the link");
        assert!(fairness >= 0.95, "{mbps} Mbit/s, {senders} senders: Jain {fairness:.3}");
        assert!(lost < 0.05, "{mbps} Mbit/s, {senders} senders: {lost:.3} of the packets were lost");
    }
}
