//! Entering and leaving the Congestion Mode over a bottleneck.

mod common;

use common::{connected, Network};
use dcudp_proto::{Config, Mode};

#[test]
fn without_a_queue_the_mode_stays_udp_and_no_ack_is_sent() {
    let (mut sim, ids) = connected(Network::paper(), &Config::default(), 1, 1);
    let from = sim.now_us;
    sim.flow(1, ids[0], Some(500_000_000), from, u64::MAX);
    let before = sim.hosts[0].endpoint.statistics(sim.hosts[0].events[0].1).expect("open").control_sent;
    sim.run_until(1_000_000);
    let statistics = sim.hosts[1].endpoint.statistics(ids[0]).expect("open");
    assert_eq!((statistics.mode, statistics.congestion_entries), (Mode::Udp, 0));
    let sent =
        sim.hosts[0].endpoint.statistics(sim.hosts[0].events[0].1).expect("open").control_sent - before;
    assert!(sent <= 120, "{sent} control packets in 1 s instead of a keep-alive each 10 ms");
    let received: u64 = sim.received(0, 100_000, 1_000_000).iter().sum();
    assert!(received as f64 * 8.0 / 0.9 > 0.98 * 500e6, "{received} bytes");
}

#[test]
fn the_first_mark_begins_it_and_its_end_ends_it() {
    let config = Config { max_rate_bps: 1_600_000_000, ..Config::default() };
    let (mut sim, ids) = connected(Network::paper(), &config, 1, 2);
    sim.hosts[0].counts_only = true;
    sim.flow(1, ids[0], Some(1_600_000_000), 0, 500_000);
    let marked_at = {
        sim.run_while(100_000, |sim| sim.queue.marked == 0);
        sim.now_us
    };
    sim.run_until(marked_at + 1000);
    assert_eq!(sim.hosts[1].endpoint.statistics(ids[0]).expect("open").mode, Mode::Congestion);
    // Below the link's rate no mark comes, so the sender returns to its own rate.
    sim.flow(1, ids[0], Some(300_000_000), 500_000, u64::MAX);
    sim.run_until(700_000);
    assert_eq!(sim.hosts[1].endpoint.statistics(ids[0]).expect("open").mode, Mode::Udp);
    let acks = sim.hosts[0].endpoint.statistics(sim.hosts[0].events[0].1).expect("open").control_sent;
    sim.run_until(1_700_000);
    let more = sim.hosts[0].endpoint.statistics(sim.hosts[0].events[0].1).expect("open").control_sent - acks;
    assert!(more <= 120, "{more} control packets in 1 s after the Congestion Mode");
}

#[test]
fn a_sender_that_stops_in_the_congestion_mode_is_not_acknowledged_for_ever() {
    let config = Config { max_rate_bps: 1_600_000_000, ..Config::default() };
    let (mut sim, ids) = connected(Network::paper(), &config, 1, 3);
    sim.hosts[0].counts_only = true;
    sim.flow(1, ids[0], Some(1_600_000_000), 0, 20_000);
    sim.run_until(200_000);
    let before = sim.datagrams;
    sim.run_until(1_200_000);
    assert!(sim.datagrams - before <= 10, "{} datagrams in an idle second", sim.datagrams - before);
    assert_eq!(sim.hosts[1].endpoint.statistics(ids[0]).expect("open").mode, Mode::Udp);
}

#[test]
fn both_ends_agree_though_a_fifth_of_all_packets_is_lost() {
    let config = Config { max_rate_bps: 1_600_000_000, ..Config::default() };
    for seed in 10..20 {
        let network =
            Network { loss: 0.2, duplication: 0.2, reordering: 0.2, reorder_us: 300, ..Network::paper() };
        let (mut sim, ids) = connected(network, &config, 1, seed);
        sim.hosts[0].counts_only = true;
        let from = sim.now_us;
        sim.flow(1, ids[0], Some(1_600_000_000), from, from + 50_000);
        sim.flows[0].limit_bytes = 400_000;
        sim.run_until(from + 50_000);
        let statistics = sim.hosts[1].endpoint.statistics(ids[0]).expect("open");
        assert!(statistics.congestion_entries > 0, "seed {seed}: {statistics:?}");
        sim.run_until(from + 3_000_000);
        let statistics = sim.hosts[1].endpoint.statistics(ids[0]).expect("open");
        assert_eq!((statistics.mode, statistics.send_buffer_bytes), (Mode::Udp, 0), "seed {seed}");
        // The receiver is quiet too: only keep-alives of once per second are left.
        let before = sim.datagrams;
        sim.run_until(from + 4_000_000);
        assert!(
            sim.datagrams - before <= 4,
            "seed {seed}: {} datagrams in an idle second",
            sim.datagrams - before
        );
    }
}
