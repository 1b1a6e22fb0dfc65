//! A switch that erases ECN, or does not mark: losses alone bring senders into the Congestion Mode.

mod common;

use common::{connected, jain, Network};
use dcudp_proto::Config;

fn lossy_share(network: Network, bleached: bool) {
    let config = Config { max_rate_bps: 1_600_000_000, ..Config::default() };
    let (mut sim, ids) = connected(network, &config, 4, 1);
    sim.hosts[0].counts_only = true;
    for (host, id) in ids.iter().enumerate() {
        sim.flow(host + 1, *id, None, 0, u64::MAX);
    }
    sim.run_until(1_000_000);
    let (drops, passed) = (sim.queue.drops, sim.queue.passed);
    sim.run_until(2_000_000);
    let share = (sim.queue.drops - drops) as f64 / (sim.queue.passed - passed) as f64;
    let received = sim.received(0, 1_000_000, 2_000_000);
    let total: u64 = received.iter().sum();
    println!(
        "bleached {bleached}: {share:.4} lost, {:.3} of the link, Jain {:.3}",
        total as f64 * 8.0 / 1e9,
        jain(&received)
    );
    // Without the reaction 4 senders at 1.6 times the link would lose 84 % of their packets.
    assert!(share < 0.06, "{share:.3} of the packets were lost");
    assert!(total as f64 * 8.0 > 0.8e9, "{total} bytes in 1 s");
    let statistics = sim.hosts[0].endpoint.statistics(sim.hosts[0].events[0].1).expect("open");
    assert_eq!((statistics.ecn_bleached, statistics.ce_received), (bleached, 0));
}

#[test]
fn a_switch_that_bleaches() {
    lossy_share(Network { bleaches: true, queue_packets: 100, ..Network::paper() }, true);
}

#[test]
fn a_switch_that_does_not_mark() {
    lossy_share(Network { marks: false, queue_packets: 100, ..Network::paper() }, false);
}
