//! A peer that is stopped for 30 s and goes on.

mod common;

use common::{connected, messages, send_all, Network};
use dcudp_proto::{Config, Event};

#[test]
fn a_pause_of_30_s_costs_no_data_and_no_connection() {
    for paused in [0, 1] {
        let network = Network { loss: 0.01, ..Network::plain(100) };
        let (mut sim, ids) = connected(network, &Config::default(), 1, 1);
        let sent = messages(2, 500, 20_000);
        send_all(&mut sim, 1, ids[0], &sent[..250], 10_000_000);
        sim.hosts[paused].paused_until_us = sim.now_us + 30_000_000;
        let until = sim.hosts[paused].paused_until_us + 1000;
        sim.run_until(until);
        send_all(&mut sim, 1, ids[0], &sent[250..], until + 10_000_000);
        sim.run_while(until + 20_000_000, |sim| sim.messages(0).len() < sent.len());
        assert!(sim.messages(0) == sent, "the messages differ");
        assert!(!sim.has_event(1 - paused, |event| matches!(event, Event::Closed { .. })));
    }
}
