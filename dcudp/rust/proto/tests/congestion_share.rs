//! What equations (1) and (2) must achieve: N senders share a link. The total is near the link, the shares
//! are equal, and the queue is bounded.

mod common;

use common::{connected, jain, Network};
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

fn share(network: Network, senders: usize, until_us: u64, seed: u64) -> Shared {
    let link_bps = network.bottleneck_bps.expect("a bottleneck");
    let config = Config { link_rate_bps: link_bps, max_rate_bps: link_bps * 8 / 5, ..Config::default() };
    let (mut sim, ids) = connected(network, &config, senders, seed);
    sim.hosts[0].counts_only = true;
    for (host, id) in ids.iter().enumerate() {
        sim.flow(host + 1, *id, Some(link_bps * 8 / 5), 50_000, 50_000 + until_us);
    }
    sim.run_until(50_000 + until_us);
    let received = sim.received(0, 50_000, 50_000 + until_us);
    let total: u64 = received.iter().sum();
    let half = 50_000 + until_us / 2;
    let late: Vec<f64> =
        sim.queue.samples.iter().filter(|(at, _)| *at > half).map(|(_, length)| *length as f64).collect();
    Shared {
        // 1400 bytes of a message in 1416 of UDP payload.
        utilisation: total as f64 * 8.0 * 1416.0 / 1400.0 / (link_bps as f64 * until_us as f64 / 1e6),
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

#[test]
fn the_proportions_of_the_lab() {
    // 20 senders of 30 Mbit/s into 19, an RTT of 5 ms: one packet per RTT of each is more than the link
    // carries. So their shares differ for longer, also if the queue of 1,000 does not overflow. Six seeds have
    // a Jain's index from 0.91 to 0.95.
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
