//! What equations (1) and (2) must achieve: N senders share a link. The total is near the link, the shares
//! are equal, and the queue is bounded.

mod common;

use common::{connected, jain, Network, Sim};
use dcudp_proto::Config;

struct Shared {
    utilisation: f64,
    jain: f64,
    early_queue: usize,
    late_queue: f64,
    drops: u64,
    /// Control packets for each data packet, on the way of the data.
    control: f64,
}

/// When the senders begin.
const BEGIN_US: u64 = 50_000;

/// Senders that each offer 1.6 times the link's rate until `until_us` after the first one began. They begin
/// `apart_us` after one another.
fn overloaded(network: Network, senders: usize, apart_us: u64, until_us: u64, seed: u64) -> Sim {
    let link_bps = network.bottleneck_bps.expect("a bottleneck");
    let config = Config { link_rate_bps: link_bps, max_rate_bps: link_bps * 8 / 5, ..Config::default() };
    let (mut sim, ids) = connected(network, &config, senders, seed);
    sim.hosts[0].counts_only = true;
    for (host, id) in ids.iter().enumerate() {
        let from_us = BEGIN_US + host as u64 * apart_us;
        sim.flow(host + 1, *id, Some(link_bps * 8 / 5), from_us, BEGIN_US + until_us);
    }
    sim
}

/// The part of the link that the received bytes took: 1400 bytes of a message are in 1416 of UDP payload.
fn part_of_link(received: &[u64], link_bps: u64, took_us: u64) -> f64 {
    received.iter().sum::<u64>() as f64 * 8.0 * 1416.0 / 1400.0 / (link_bps as f64 * took_us as f64 / 1e6)
}

fn share(network: Network, senders: usize, until_us: u64, seed: u64) -> Shared {
    let link_bps = network.bottleneck_bps.expect("a bottleneck");
    let mut sim = overloaded(network, senders, 0, until_us, seed);
    sim.run_until(BEGIN_US + until_us);
    let received = sim.received(0, BEGIN_US, BEGIN_US + until_us);
    let half = BEGIN_US + until_us / 2;
    let late: Vec<f64> =
        sim.queue.samples.iter().filter(|(at, _)| *at > half).map(|(_, length)| *length as f64).collect();
    Shared {
        utilisation: part_of_link(&received, link_bps, until_us),
        jain: jain(&received),
        early_queue: sim.queue.longest,
        late_queue: late.iter().sum::<f64>() / late.len().max(1) as f64,
        drops: sim.queue.drops,
        control: sim.queue.control as f64 / (sim.queue.passed - sim.queue.control) as f64,
    }
}

#[test]
fn one_to_twenty_senders_for_one_second() {
    for senders in [1, 2, 5, 10, 20] {
        let shared = share(Network::paper(), senders, 1_000_000, senders as u64);
        println!(
            "{senders} senders: {:.3} of the link, Jain {:.3}, queue at most {}, late mean {:.1}, {} drops",
            shared.utilisation, shared.jain, shared.early_queue, shared.late_queue, shared.drops
        );
        assert!(shared.utilisation > 0.94, "{senders} senders: {:.3} of the link", shared.utilisation);
        assert!(shared.jain >= 0.95, "{senders} senders: Jain {:.3}", shared.jain);
        assert!(shared.late_queue < 60.0, "{senders} senders: a queue of {:.1}", shared.late_queue);
        assert!(shared.drops < 500, "{senders} senders: {} drops", shared.drops);
        // An ACK2 for eight data packets; one for each ACK would be 0.9 with 20 senders.
        assert!(shared.control < 0.16, "{senders} senders: {:.3} control packets", shared.control);
    }
}

#[test]
fn short_flows_of_ten_milliseconds() {
    for senders in [1, 5, 20] {
        let shared = share(Network::paper(), senders, 10_000, 100 + senders as u64);
        println!("{senders} short senders: {:.3} of the link, Jain {:.3}", shared.utilisation, shared.jain);
        assert!(shared.utilisation > 0.7, "{senders} senders: {:.3} of the link", shared.utilisation);
    }
}

/// The time until the last of some flows that begin at once has ended, as a multiple of what the link needs.
fn last_of_short_flows(senders: usize, seed: u64) -> f64 {
    const BYTES: u64 = 1_250_000;
    let link_bps = 1_000_000_000;
    let mut sim = overloaded(Network::paper(), senders, 0, 100_000, seed);
    let each = BYTES / senders as u64 / 1400 * 1400;
    for flow in &mut sim.flows {
        (flow.rate_bps, flow.limit_bytes) = (None, each);
    }
    let all = each * senders as u64;
    let mut took_us = 0;
    while sim.hosts[0].bins.values().flatten().sum::<u64>() < all {
        assert!(took_us < 100_000, "{senders} senders: not all has arrived");
        took_us += 100;
        sim.run_until(BEGIN_US + took_us);
    }
    1.0 / part_of_link(&[all], link_bps, took_us)
}

#[test]
fn short_flows_end_together() {
    // A sender whose first ACK made it forget all but a packet per RTT ended long after the others: ten needed 1.6.
    for senders in [2, 5, 10, 20] {
        let times: Vec<f64> = (0..10).map(|seed| last_of_short_flows(senders, seed)).collect();
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        println!("{senders} short senders: the last flow ends after {mean:.3} times the least time");
        assert!(mean < 1.25, "{senders} senders: {mean:.3}");
    }
}

#[test]
fn the_proportions_of_the_lab() {
    // 20 senders of 30 Mbit/s into 19, an RTT of 5 ms: one packet per RTT of each is more than the link
    // carries. So their shares differ for longer, also if the queue of 1,000 does not overflow. Ten seeds have
    // a Jain's index from 0.92 to 0.96.
    let network = Network { bottleneck_bps: Some(19_000_000), queue_packets: 1000, ..Network::plain(2500) };
    for (senders, least_jain) in [(2, 0.95), (10, 0.95), (20, 0.9)] {
        let shared = share(network.clone(), senders, 5_000_000, 200 + senders as u64);
        println!(
            "{senders} senders at 19 Mbit/s: {:.3}, Jain {:.3}, queue at most {}, late mean {:.1}",
            shared.utilisation, shared.jain, shared.early_queue, shared.late_queue
        );
        assert!(shared.utilisation > 0.92, "{senders} senders: {:.3} of the link", shared.utilisation);
        assert!(shared.jain >= least_jain, "{senders} senders: Jain {:.3}", shared.jain);
    }
}

#[test]
fn senders_that_begin_one_after_another() {
    // While others still send at their full rates, the queue grows faster than it drains. A mark comes only after
    // the packet has passed the queue, and the packets of a sender that has slowed down arrive seldom.
    for (mbps, delay_us, apart) in [
        (19, 2500, [500, 1000, 2000, 10_000]),
        (100, 500, [50, 200, 1000, 5000]),
        (1000, 50, [10, 50, 200, 1000]),
    ] {
        for apart_us in apart {
            let bottleneck_bps = Some(mbps * 1_000_000);
            let network = Network { bottleneck_bps, queue_packets: 2700, ..Network::plain(delay_us) };
            let carried = one_after_another(network, 20, apart_us, mbps + apart_us);
            assert!(carried > 0.93, "{mbps} Mbit/s, {apart_us} us apart: {carried:.3} of the link");
        }
    }
}

/// The part of the link that senders have once all have begun. Nothing may be lost.
fn one_after_another(network: Network, senders: usize, apart_us: u64, seed: u64) -> f64 {
    let link_bps = network.bottleneck_bps.expect("a bottleneck");
    let (begins_us, lasts_us) = (senders as u64 * apart_us, 8 * 19_000_000_000_000 / link_bps);
    let mut sim = overloaded(network, senders, apart_us, begins_us + lasts_us, seed);
    let (from_us, until_us) = (BEGIN_US + begins_us, BEGIN_US + begins_us + lasts_us);
    sim.run_until(until_us);
    let received = sim.received(0, from_us, until_us);
    let carried = part_of_link(&received, link_bps, lasts_us);
    println!(
        "{link_bps} bit/s, {apart_us} us apart: {carried:.3} of the link, Jain {:.3}, queue at most {}, {} drops",
        jain(&received), sim.queue.longest, sim.queue.drops
    );
    assert_eq!(sim.queue.drops, 0, "{link_bps} bit/s, {apart_us} us apart");
    carried
}

#[test]
fn different_rtts() {
    // Base RTTs from 100 to 280 us.
    let network = Network { host_delay_us: (0..11).map(|host| host * 9).collect(), ..Network::paper() };
    let shared = share(network, 10, 1_000_000, 300);
    println!("10 senders, RTTs 100 to 280 us: {:.3}, Jain {:.3}", shared.utilisation, shared.jain);
    assert!(shared.utilisation > 0.93, "{:.3} of the link", shared.utilisation);
    assert!(shared.jain >= 0.8, "Jain {:.3}", shared.jain);
}

#[test]
fn a_sender_alone_on_a_long_path() {
    for (mbps, delay_us, until_us) in
        [(100, 2500, 4_000_000), (100, 10_000, 6_000_000), (1000, 500, 1_000_000), (1000, 2500, 2_000_000)]
    {
        let bottleneck_bps = Some(mbps * 1_000_000);
        let network = Network { bottleneck_bps, queue_packets: 2700, ..Network::plain(delay_us) };
        let shared = share(network, 1, until_us, 400);
        println!("{mbps} Mbit/s, {delay_us} us: {:.3}", shared.utilisation);
        assert!(shared.utilisation > 0.92, "{mbps} Mbit/s, {delay_us} us: {:.3}", shared.utilisation);
    }
}

#[test]
fn a_link_that_does_not_mark() {
    const FROM_US: u64 = BEGIN_US + 1_000_000;
    const UNTIL_US: u64 = BEGIN_US + 5_000_000;
    for (mbps, senders) in [(100, 2), (100, 4), (100, 10), (1000, 2), (1000, 4), (1000, 10)] {
        let link_bps = mbps * 1_000_000;
        let (queue_packets, marks) = (100, false);
        let network = Network { bottleneck_bps: Some(link_bps), queue_packets, marks, ..Network::plain(500) };
        let mut sim = overloaded(network, senders, 0, UNTIL_US - BEGIN_US, 7);
        sim.run_until(FROM_US);
        let (drops, passed) = (sim.queue.drops, sim.queue.passed);
        sim.run_until(UNTIL_US);
        let received = sim.received(0, FROM_US, UNTIL_US);
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

#[test]
fn hosts_that_stand_still() {
    // Then many packets are in flight although the queue is short.
    let mut network = Network::paper();
    network.queue_packets = 1000;
    for (senders, least) in [(1, 0.6), (5, 0.8)] {
        let mut sim = overloaded(network.clone(), senders, 0, 1_000_000, 5);
        let mut rng = common::Rng::new(9);
        let mut next_us = vec![BEGIN_US; senders + 1];
        for now_us in (BEGIN_US..BEGIN_US + 1_000_000).step_by(100) {
            sim.run_until(now_us);
            for (host, at_us) in next_us.iter_mut().enumerate().filter(|(_, at_us)| **at_us <= now_us) {
                sim.hosts[host].paused_until_us = now_us + 1 + rng.below(5000);
                *at_us = now_us + 5000 + rng.below(10_000);
            }
        }
        let bits = sim.received(0, BEGIN_US, BEGIN_US + 1_000_000).iter().sum::<u64>() as f64 * 8.0;
        println!("{senders} senders on hosts that stand still: {:.3} of the link", bits / 1e9);
        assert!(bits / 1e9 > least, "{senders} senders: {:.3} of the link", bits / 1e9);
    }
}

#[test]
fn a_burst_on_an_idle_path() {
    // Nothing is marked, so the first report is one that the sender asked for.
    for delay_us in [50, 500, 5000] {
        let network = Network { bottleneck_bps: Some(2_000_000_000), ..Network::plain(delay_us) };
        let config =
            Config { link_rate_bps: 1_000_000_000, max_rate_bps: 1_000_000_000, ..Config::default() };
        let (mut sim, ids) = connected(network, &config, 1, 11);
        sim.hosts[0].counts_only = true;
        sim.flow(1, ids[0], None, BEGIN_US, BEGIN_US + 50_000);
        sim.run_until(BEGIN_US + 50_000);
        let received = sim.received(0, BEGIN_US, BEGIN_US + 50_000);
        let carried_us = 50_000.0 * part_of_link(&received, 1_000_000_000, 50_000);
        let late_us = 50_000.0 - delay_us as f64 - carried_us;
        println!("RTT {} us: {late_us:.0} us late after 50 ms", 2 * delay_us);
        assert!(late_us < 1500.0 + 2.0 * delay_us as f64, "RTT {} us: {late_us:.0} us late", 2 * delay_us);
    }
}
