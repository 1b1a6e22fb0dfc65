//! The handshake proves which datagrams the path carries, so an MTU black hole costs time and no data.

mod common;

use common::{connected, messages, send_all, Network};
use dcudp_proto::Config;

#[test]
fn the_whole_mtu_is_used_if_the_path_carries_it() {
    let config = Config { mtu_bytes: 8952, ..Config::default() };
    let (sim, ids) = connected(Network::plain(100), &config, 1, 1);
    assert_eq!(sim.hosts[1].endpoint.statistics(ids[0]).expect("open").mtu_bytes, 8952);
}

#[test]
fn a_black_hole_leads_to_the_base_size() {
    let config = Config { mtu_bytes: 8952, ..Config::default() };
    let (mut sim, ids) = connected(Network { path_mtu: 1452, ..Network::plain(100) }, &config, 1, 1);
    for (host, id) in [(1, ids[0]), (0, sim.hosts[0].events[0].1)] {
        assert_eq!(sim.hosts[host].endpoint.statistics(id).expect("open").mtu_bytes, 1200);
    }
    let sent = messages(1, 50, 30_000);
    send_all(&mut sim, 1, ids[0], &sent, 5_000_000);
    sim.run_while(10_000_000, |sim| sim.messages(0).len() < sent.len());
    assert!(sim.messages(0) == sent, "the messages differ");
}

#[test]
fn both_ends_have_their_whole_rate_at_the_base_size() {
    let config = Config { mtu_bytes: 8952, ..Config::default() };
    let (sim, ids) = connected(Network { path_mtu: 1452, ..Network::plain(100) }, &config, 1, 1);
    for (host, id) in [(1, ids[0]), (0, sim.hosts[0].events[0].1)] {
        let statistics = sim.hosts[host].endpoint.statistics(id).expect("open");
        let rate_bps = statistics.rate_pps * 8.0 * statistics.mtu_bytes as f64;
        assert!((rate_bps / config.max_rate_bps as f64 - 1.0).abs() < 1e-6, "host {host}: {rate_bps} bit/s");
    }
}

#[test]
fn different_settings_meet_at_the_smaller_one() {
    let mut sim = common::Sim::new(Network::plain(100), 1);
    sim.host(Config { mtu_bytes: 1300, ..Config::default() }, true);
    sim.host(Config { mtu_bytes: 9000, ..Config::default() }, false);
    let id = sim.connect(1, 0);
    sim.run_until(1_000_000);
    let incoming = sim.hosts[0].events[0].1;
    for (host, id) in [(1, id), (0, incoming)] {
        assert_eq!(sim.hosts[host].endpoint.statistics(id).expect("open").mtu_bytes, 1300);
    }
}
